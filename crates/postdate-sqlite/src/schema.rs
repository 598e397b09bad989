//! Whose file it is, and which version of the tables is in it.

use postdate_core::{EndpointName, StoreErrorKind};
use rusqlite::{Connection, OptionalExtension};

use crate::error::{Fault, Result};

/// Marks a database as ours, in its header: the letters `pstd`.
const APPLICATION_ID: i32 = 0x7073_7464;

/// What brings a file from the version of its place in this list to the next.
const MIGRATIONS: &[&str] = &[include_str!("sql/001-initial.sql")];

/// Refuses a file that is not ours or that a newer postdate has written. Changes nothing.
pub(crate) fn check(connection: &Connection) -> Result<()> {
    // One transaction: somebody who sets the file up meanwhile must not show half of it.
    let transaction = connection.unchecked_transaction()?;
    version(&transaction).map(drop)
}

/// Makes the tables and the endpoint's row. To be run in a write transaction: then any number of processes may
/// do it at once.
pub(crate) fn set_up(connection: &Connection, endpoint: Option<&EndpointName>) -> Result<()> {
    let version = version(connection)?;
    if version < MIGRATIONS.len() {
        for migration in &MIGRATIONS[version..] {
            connection.execute_batch(migration)?;
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", MIGRATIONS.len() as i64)?;
    }
    if let Some(endpoint) = endpoint {
        connection.execute(
            "INSERT INTO endpoint (name) VALUES (?1) ON CONFLICT (name) DO NOTHING",
            [endpoint.as_str()],
        )?;
    }
    Ok(())
}

/// The number under which an endpoint's messages are kept.
pub(crate) fn endpoint(connection: &Connection, name: &EndpointName) -> Result<i64> {
    let number = connection
        .query_row("SELECT id FROM endpoint WHERE name = ?1", [name.as_str()], |row| row.get(0))
        .optional()?;
    number.ok_or_else(|| {
        let advice = "run `postdate setup` or call `set_up` for it";
        Fault::new(StoreErrorKind::NotSetUp, format!("endpoint `{name}` has not been set up; {advice}"))
    })
}

/// What to say of a file that is not ours.
pub(crate) fn foreign() -> Fault {
    let detail = "the file belongs to another application; nothing was changed, choose another path";
    Fault::new(StoreErrorKind::Corrupt, detail)
}

fn version(connection: &Connection) -> Result<usize> {
    let owner: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if owner == APPLICATION_ID {
        return usize::try_from(version).ok().filter(|version| *version <= MIGRATIONS.len()).ok_or_else(
            || {
                let known = MIGRATIONS.len();
                let advice = "update this postdate";
                Fault::new(
                    StoreErrorKind::TooNew,
                    format!("the file has schema version {version}, this postdate knows {known}; {advice}"),
                )
            },
        );
    }
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if owner != 0 || version != 0 || tables != 0 {
        return Err(foreign());
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_up_again_changes_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        let name = EndpointName::new("orders").unwrap();
        assert_eq!(set_up(&connection, Some(&name)).err().map(|fault| fault.kind()), None);
        let before: i64 = connection.pragma_query_value(None, "schema_version", |row| row.get(0)).unwrap();
        set_up(&connection, Some(&name)).unwrap();
        let after: i64 = connection.pragma_query_value(None, "schema_version", |row| row.get(0)).unwrap();
        assert_eq!(before, after);
        assert_eq!(endpoint(&connection, &name).unwrap(), 1);
    }

    #[test]
    fn a_newer_file_and_a_foreign_one_are_refused() {
        let connection = Connection::open_in_memory().unwrap();
        set_up(&connection, None).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        assert_eq!(check(&connection).unwrap_err().kind(), StoreErrorKind::TooNew);
        assert_eq!(set_up(&connection, None).unwrap_err().kind(), StoreErrorKind::TooNew);

        for foreign in ["CREATE TABLE theirs (x)", "PRAGMA application_id = 7", "PRAGMA user_version = 3"] {
            let connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(foreign).unwrap();
            assert_eq!(check(&connection).unwrap_err().kind(), StoreErrorKind::Corrupt, "{foreign}");
        }
    }

    #[test]
    fn the_search_for_due_messages_reads_the_index_alone_and_in_order() {
        let connection = Connection::open_in_memory().unwrap();
        set_up(&connection, None).unwrap();
        for (sql, plan) in [
            (
                crate::fetch::SCAN,
                "SEARCH message USING COVERING INDEX message_attempt (endpoint=? AND attempt_at<?)",
            ),
            (
                crate::receiver::FIND,
                "SEARCH queue_message USING COVERING INDEX queue_message_order (queue=?)",
            ),
        ] {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let parameters = vec![0; explain.parameter_count()];
            let steps: Vec<String> = explain
                .query_map(rusqlite::params_from_iter(parameters), |row| row.get(3))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            assert_eq!(steps, [plan]);
        }
    }
}
