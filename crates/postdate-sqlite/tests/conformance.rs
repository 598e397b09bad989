//! The published suite, on files of this crate.

use std::{
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use postdate_conformance::{Meddled, Meddling, Place, Suite};
use postdate_core::{Backend, Queues};
use postdate_sqlite::Sqlite;
use rusqlite::Connection;

fn main() -> ExitCode {
    Suite::new("sqlite")
        .stores(|place| {
            let path = file(place);
            async move { Ok(Arc::new(Sqlite::open(path).await?) as Arc<dyn Backend>) }
        })
        .queues(|place| {
            let path = file(place);
            async move { Ok(Arc::new(Sqlite::open(path).await?.queues()) as Arc<dyn Queues>) }
        })
        .meddling(|place, meddling| {
            let path = file(place);
            async move { meddle(&path, &meddling) }
        })
        .run()
}

fn file(place: &Place) -> PathBuf {
    place.dir().join("postdate.db")
}

fn meddle(path: &Path, meddling: &Meddling) -> Result<Meddled, Box<dyn Error + Send + Sync>> {
    Ok(match meddling {
        Meddling::UnreadableRow { endpoint, id } => {
            let damaged = Connection::open(path)?.execute(
                "UPDATE message SET destination = ''
                 WHERE id = ?1 AND endpoint = (SELECT id FROM endpoint WHERE name = ?2)",
                [id.as_str(), endpoint.as_str()],
            )?;
            if damaged != 1 {
                return Err(format!("{damaged} rows were damaged").into());
            }
            Meddled::Done
        }
        Meddling::NewerSchema => add_to_version(path, 1_000)?,
        Meddling::CurrentSchema => add_to_version(path, -1_000)?,
        Meddling::OlderSchema => Meddled::Impossible("there is one version so far"),
        Meddling::NoRightToMakeTables => Meddled::Impossible("SQLite knows no rights on tables"),
        Meddling::SessionTimeZone(_) => Meddled::Impossible("times are numbers, and SQLite has no sessions"),
        _ => Meddled::Impossible("not known here"),
    })
}

fn add_to_version(path: &Path, difference: i64) -> rusqlite::Result<Meddled> {
    let connection = Connection::open(path)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    connection.pragma_update(None, "user_version", version + difference)?;
    Ok(Meddled::Done)
}
