//! The stores whose promise is tried.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use postdate::{Backend, Connected, Queues, sqlite::Durability};
use test_postgres::{Server, Settings};

use crate::island::Island;

/// A kind of store and how durable it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite(Durability),
    Postgres(Commits),
}

/// Whether PostgreSQL waits for the disk before it says that something is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commits {
    WhenOnDisk,
    Before,
}

/// A store on an island.
#[derive(Debug)]
pub(crate) enum Store {
    Sqlite { url: String, file: PathBuf },
    Postgres(Box<Server>),
}

/// Connects to a store of any kind and the queues beside it.
pub(crate) async fn connect(url: &str) -> Result<(Arc<dyn Backend>, Arc<dyn Queues>)> {
    let Connected { backend, queues } = postdate::connect(url).await?;
    Ok((backend, queues.context("there are no queues beside this store")?))
}

impl Kind {
    /// A new and empty store.
    pub(crate) fn start(self, island: &Island, name: &str) -> Result<Store> {
        match self {
            Self::Sqlite(durability) => {
                let file = island.path().join(format!("{name}.db"));
                let durability = match durability {
                    Durability::PowerLoss => "power-loss",
                    Durability::ProcessCrash => "process-crash",
                };
                Ok(Store::Sqlite { url: format!("sqlite:{}?durability={durability}", file.display()), file })
            }
            Self::Postgres(commits) => {
                let mut settings =
                    Settings::durable().placed_in(&island.path()).option("max_wal_size", "64MB");
                if commits == Commits::Before {
                    // Left alone it would write within a second.
                    settings = settings.option("synchronous_commit", "off").option("wal_writer_delay", "10s");
                }
                Ok(Store::Postgres(Box::new(Server::start(&settings)?)))
            }
        }
    }
}

impl Store {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite { url, .. } => url.clone(),
            Self::Postgres(server) => server.url(),
        }
    }

    /// Ends what runs where the power is off.
    pub(crate) fn die(&mut self) -> Result<()> {
        match self {
            Self::Sqlite { .. } => Ok(()),
            Self::Postgres(server) => server.kill(),
        }
    }

    /// Starts what has to run once the power is back.
    pub(crate) fn recover(&mut self) -> Result<()> {
        match self {
            Self::Sqlite { .. } => Ok(()),
            Self::Postgres(server) => server.start_again(),
        }
    }

    /// Whether the files are whole; a server has looked at its own when it started, and does at every page it reads.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Sqlite { file, .. } => check_sqlite(file),
            Self::Postgres(_) => Ok(()),
        }
    }
}

fn check_sqlite(file: &Path) -> Result<()> {
    let check = rusqlite::Connection::open(file).context("the file does not open")?;
    let answer: String = check.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    ensure!(answer == "ok", "{answer}");
    Ok(())
}
