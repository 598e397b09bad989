//! Settings of a server with which it keeps less than what it acknowledged.

use sqlx::{PgConnection, Row};

use crate::error::Result;

/// Those that every server knows; the names are those of the manual, chapter "Write Ahead Log".
const LOOK: &str = "
    SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')";

/// A setting, the values that are safe, and what to say of others.
const SAFE: [(&str, &[&str], &str); 3] = [
    (
        "fsync",
        &["on"],
        "the server does not wait for its disk, and a power failure can destroy the whole database; set it to on",
    ),
    (
        "full_page_writes",
        &["on"],
        "a power failure can leave half-written pages; set it to on unless the disk writes pages as a whole",
    ),
    (
        "synchronous_commit",
        &["on", "local", "remote_write", "remote_apply"],
        "a crash of the server can lose messages that were acknowledged; set it to on, for this user at least",
    ),
];

pub(crate) async fn of(connection: &mut PgConnection) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    for row in sqlx::query(LOOK).fetch_all(connection).await? {
        let (name, setting): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        warnings.extend(warning(&name, &setting));
    }
    Ok(warnings)
}

fn warning(name: &str, setting: &str) -> Option<String> {
    let (_, safe, advice) = SAFE.iter().find(|(known, ..)| *known == name)?;
    (!safe.contains(&setting)).then(|| format!("{name} is {setting}: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loses_messages_is_warned_of() {
        assert!(warning("fsync", "off").is_some_and(|warning| warning.starts_with("fsync is off: ")));
        assert!(warning("synchronous_commit", "off").is_some());
        for (name, setting) in [("fsync", "on"), ("synchronous_commit", "local"), ("work_mem", "off")] {
            assert_eq!(warning(name, setting), None);
        }
    }
}
