//! A directory on a disk of ours, with a database in it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use crash_tests::{Chance, Disk, Image};
use rusqlite::Connection;
use tempfile::TempDir;

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Place {
    folder: TempDir,
    pub(crate) disk: Arc<Disk>,
}

impl Place {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self::of(folder())
    }

    /// What is left after the power went off: the files of an image, and rubbish in those that need not survive.
    pub(crate) fn after_crash(image: &Image, chance: &mut Chance) -> Self {
        let folder = folder();
        image.write_to(folder.path()).unwrap();
        for name in
            ["postdate.db-shm", "postdate.db-claims-1", "postdate.db-claims-2", "postdate.db-dispatch-1"]
        {
            if chance.permille(300) {
                let size = chance.one_of(&[0, 7, 64, 32 << 10]);
                std::fs::write(folder.path().join(name), chance.bytes(size)).unwrap();
            }
        }
        Self::of(folder)
    }

    fn of(folder: TempDir) -> Self {
        let disk = Disk::attach(folder.path()).unwrap();
        Self { folder, disk }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("postdate.db")
    }

    /// Waits until what was dropped is closed.
    pub(crate) fn wait_until_closed(&self) {
        assert!(self.disk.wait_until_closed(PATIENCE), "the file is still open");
    }

    /// Keeps the files of an image for whoever looks for the fault.
    pub(crate) fn keep(image: &Image) -> PathBuf {
        let folder = folder().keep();
        image.write_to(&folder).unwrap();
        folder
    }
}

/// A connection of nobody's.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("postdate-crash-").tempdir().unwrap()
}

/// What chance begins with in all tests of this process: `POSTDATE_CRASH_SEED`, or the time.
pub(crate) fn seed() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| match std::env::var("POSTDATE_CRASH_SEED") {
        Ok(seed) => seed.parse().expect("POSTDATE_CRASH_SEED is a number"),
        Err(_) => u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap(),
    });
    println!("POSTDATE_CRASH_SEED={}", *SEED);
    *SEED
}

/// How many images to make where `few` are made by default: `POSTDATE_CRASH_FACTOR` times as many.
pub(crate) fn many(few: usize) -> usize {
    few * std::env::var("POSTDATE_CRASH_FACTOR")
        .map_or(1, |factor| factor.parse().expect("POSTDATE_CRASH_FACTOR is a number"))
}
