//! Loops written by hand on sqlx: the least that the same work can cost on the same server.
//!
//! They have the table of `postdate-postgres` with the same two indexes, and do nothing else: no failures, no retries, no
//! cancelling, no schema that can be configured.

pub(super) mod drain;
pub(super) mod lateness;
pub(super) mod store;
mod table;

pub(super) use table::create;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::Result;
    use jiff::Timestamp;
    use sqlx::query_scalar;

    use super::*;
    use crate::{
        bounds::drain::To,
        postgres::{
            server::{Database, Server},
            tests::server,
        },
        workload::{Dues, Workload},
    };

    const LONG: Duration = Duration::from_secs(3_600);

    const STORED: &str = "SELECT count(*) FROM message";
    const QUEUED: &str = "SELECT count(*) FROM queue_message";

    async fn number(database: &Database, statement: &'static str) -> Result<i64> {
        Ok(query_scalar(statement).fetch_one(&mut database.connect().await?).await?)
    }

    #[tokio::test]
    async fn all_producers_together_store_every_message() -> Result<()> {
        let server = server();
        let database = Server::new(&server.url())?.empty_database().await?;
        create(&database).await?;
        let messages = Workload::new().messages(100, Dues::FarAhead);
        let batches = store::store(&database, &messages[..60], 4, 3, LONG).await?;
        let singles = store::store(&database, &messages[60..], 8, 1, LONG).await?;
        assert_eq!((batches.messages, singles.messages, number(&database, STORED).await?), (60, 40, 100));
        Ok(())
    }

    #[tokio::test]
    async fn a_drain_removes_what_is_due_and_leaves_the_rest() -> Result<()> {
        let server = server();
        let database = Server::new(&server.url())?.empty_database().await?;
        create(&database).await?;
        let (mut workload, mut connection) = (Workload::new(), database.connect().await?);
        for (to, queued) in [(To::Nowhere, 0), (To::LocalQueue, 2_100)] {
            store::fill(&mut connection, &workload.messages(2_100, Dues::Overdue)).await?;
            store::fill(&mut connection, &workload.messages(25, Dues::FarAhead)).await?;
            assert_eq!(drain::drain(&database, 4, to).await?.messages, 2_100);
            assert_eq!(number(&database, QUEUED).await?, queued);
        }
        assert_eq!(number(&database, STORED).await?, 50);
        Ok(())
    }

    #[tokio::test]
    async fn lateness_is_measured_for_every_message_and_none_is_early() -> Result<()> {
        let server = server();
        let database = Server::new(&server.url())?.empty_database().await?;
        create(&database).await?;
        let workload = Workload::new();
        let soon = |number| workload.message(number, Timestamp::now() + Duration::from_millis(20));
        let watch = async |measured| Ok(measured);
        let measured = lateness::lateness(&database, 5, Duration::from_millis(5), soon, watch).await?;
        assert_eq!(measured.lateness.len(), 5);
        assert!(measured.lateness.iter().all(|late| !late.is_negative()), "{:?}", measured.lateness);
        Ok(())
    }
}
