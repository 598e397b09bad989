//! Loops written by hand on rusqlite: the least that the same work can cost on the same SQLite.
//!
//! They have one table with the same two indexes, write with the same durability and the same settings of the
//! file as `postdate-sqlite`, and do nothing else: no claims, no failures, no cancelling, no other process.

pub(crate) mod drain;
mod file;
pub(crate) mod lateness;
pub(crate) mod store;

pub(crate) use file::File;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Result;

    use super::*;
    use crate::workload::{Dues, Workload};

    const LONG: Duration = Duration::from_secs(3_600);

    fn count(file: &File, table: &str) -> Result<u32> {
        Ok(file.connect()?.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))?)
    }

    #[test]
    fn all_producers_together_store_every_message() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = File::create(&folder.path().join("a.db"))?;
        let messages = Workload::new().messages(100, Dues::FarAhead);
        let measured = store::store(&file, &messages, 8, 3, LONG)?;
        assert_eq!((measured.messages, count(&file, "message")?), (100, 100));
        Ok(())
    }

    #[test]
    fn a_drain_moves_what_is_due_and_leaves_the_rest() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = File::create(&folder.path().join("a.db"))?;
        let (mut workload, mut connection) = (Workload::new(), file.connect()?);
        store::fill(&mut connection, &workload.messages(700, Dues::Overdue))?;
        store::fill(&mut connection, &workload.messages(50, Dues::FarAhead))?;
        assert_eq!(drain::drain(&mut connection, drain::To::LocalQueue)?.messages, 700);
        assert_eq!((count(&file, "message")?, count(&file, "queued")?), (50, 700));
        assert_eq!(drain::drain(&mut connection, drain::To::Nowhere)?.messages, 0);
        Ok(())
    }

    #[test]
    fn lateness_is_measured_for_every_message_and_none_is_early() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = File::create(&folder.path().join("a.db"))?;
        let workload = Workload::new();
        let soon = |number| workload.message(number, jiff::Timestamp::now() + Duration::from_millis(20));
        let measured = lateness::lateness(&file, 5, Duration::from_millis(5), soon)?;
        assert_eq!(measured.lateness.len(), 5);
        assert_eq!(count(&file, "message")?, 0);
        Ok(())
    }
}
