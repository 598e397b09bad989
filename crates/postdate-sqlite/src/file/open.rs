//! Finding the file and connecting to it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use postdate_core::StoreErrorKind;
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::network;
use crate::{
    Durability,
    error::{Fault, Result},
    schema,
};

/// How long to wait for another process that is writing.
const BUSY: Duration = Duration::from_secs(10);

/// After so many pages the log is written back: measured, ten times SQLite's default drains a fifth faster.
const CHECKPOINT_PAGES: u32 = 10_000;

/// The log is cut to this size when it is written back, whatever a burst made of it.
const LOG_BYTES: u32 = 64 << 20;

/// How hard a commit presses for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synchronous {
    /// Checkpoints only.
    Normal = 1,
    /// Every commit.
    Full = 2,
}

impl From<Durability> for Synchronous {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::PowerLoss => Self::Full,
            Durability::ProcessCrash => Self::Normal,
        }
    }
}

impl Synchronous {
    /// Sets it on a connection that is in no transaction, and asks whether that worked: SQLite ignores what it
    /// does not like.
    pub(crate) fn set(self, connection: &Connection) -> Result<()> {
        set(connection, "synchronous", self as i64)
    }
}

/// Makes a path absolute, so that it means the same file for ever and in every process.
pub(crate) fn locate(path: &Path) -> Result<PathBuf> {
    let wrong = |detail: String| Fault::new(StoreErrorKind::Configuration, detail);
    if path.as_os_str() == ":memory:" {
        return Err(wrong("a database in memory would be lost; write the name of a file".into()));
    }
    if path.is_dir() {
        return Err(wrong(format!("{} is a directory; write the name of a file in it", path.display())));
    }
    let Some(name) = path.file_name() else {
        return Err(wrong(format!("{:?} names no file; write a path like postdate.db", path.display())));
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let absolute = if cfg!(windows) { std::path::absolute(directory) } else { directory.canonicalize() };
    let directory = absolute.ok().filter(|directory| directory.is_dir()).ok_or_else(|| {
        wrong(format!(
            "the directory {} does not exist or may not be entered; create it",
            directory.display()
        ))
    })?;
    let mut file = directory.join(name);
    // The small files beside the database must have the same names for those who come by a symbolic link.
    if file.is_symlink() {
        file = file.canonicalize().map_err(|_| wrong(format!("{} is a dead link", file.display())))?;
    }
    network::check(file.parent().unwrap_or(&directory))?;
    check_names(&file)?;
    Ok(file)
}

/// The connection that writes. Creates the file if there is none; leaves one that is not ours untouched.
pub(crate) fn writer(path: &Path, synchronous: Synchronous) -> Result<Connection> {
    // SQLite would take what is shorter than its smallest page for an empty database.
    if path.metadata().is_ok_and(|metadata| (1..512).contains(&metadata.len())) {
        return Err(schema::foreign());
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    // Closing would otherwise write the log of somebody else's database back.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    schema::check(&connection)?;
    if connection.is_readonly("main")? {
        let detail = "the file is read-only; give this user write access to it and its directory";
        return Err(Fault::new(StoreErrorKind::Configuration, detail));
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    use_log(&connection)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    tune(&connection, synchronous)?;
    check_writable(&connection)?;
    Ok(connection)
}

/// A connection that only reads a file which [`writer`] has opened.
pub(crate) fn reader(path: &Path, synchronous: Synchronous) -> Result<Connection> {
    let connection = connect(path, OpenFlags::empty())?;
    tune(&connection, synchronous)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Refuses a file with two names: SQLite keeps a log for each, and what is in the one is missing from the other.
#[cfg(unix)]
fn check_names(file: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;

    if !file.metadata().is_ok_and(|metadata| metadata.nlink() > 1) {
        return Ok(());
    }
    let detail =
        format!("{} has another name, a hard link; remove one or make it a symbolic link", file.display());
    Err(Fault::new(StoreErrorKind::Configuration, detail))
}

/// Elsewhere this is not found out.
#[cfg(not(unix))]
fn check_names(_: &Path) -> Result<()> {
    Ok(())
}

/// Finds out now whether the log can be written, which is a file of its own. Others who write at this moment show
/// that it can.
fn check_writable(connection: &Connection) -> Result<()> {
    match connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => Err(error.into()),
        _ => Ok(()),
    }
}

fn connect(path: &Path, more: OpenFlags) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags | more)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

fn tune(connection: &Connection, synchronous: Synchronous) -> Result<()> {
    synchronous.set(connection)?;
    // On macOS a sync leaves the data in the cache of the drive unless this is set. Elsewhere it changes nothing.
    let flush = i64::from(synchronous == Synchronous::Full);
    set(connection, "fullfsync", flush)?;
    set(connection, "checkpoint_fullfsync", flush)?;
    // In KiB. What is read to claim a batch is still there when the batch is removed.
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Sets a pragma to a number, and asks whether that worked.
fn set(connection: &Connection, pragma: &str, to: i64) -> Result<()> {
    connection.pragma_update(None, pragma, to)?;
    let is: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0))?;
    if is == to {
        return Ok(());
    }
    Err(Fault::new(StoreErrorKind::Other, format!("{pragma} is {is} where {to} was asked for")))
}

/// Switches to write-ahead logging. SQLite does not wait for others who do the same at this moment: it answers
/// that the file is busy, at once.
fn use_log(connection: &Connection) -> Result<()> {
    let deadline = Instant::now() + BUSY;
    loop {
        match switch_to_log(connection) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let detail = format!(
                    "the file system has no shared memory (journal mode stays {mode}); choose a local disk"
                );
                return Err(Fault::new(StoreErrorKind::Configuration, detail));
            }
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The mode that the file is in afterwards. SQLite answers before it commits the change: only the step after the
/// answer tells whether that worked.
fn switch_to_log(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare("PRAGMA journal_mode = wal")?;
    let mut rows = statement.query([])?;
    let mode = rows.next()?.map_or_else(|| Ok(String::new()), |row| row.get(0))?;
    rows.next()?;
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_commits_as_hard_as_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        for synchronous in [Synchronous::Full, Synchronous::Normal] {
            for connection in [writer(&path, synchronous).unwrap(), reader(&path, synchronous).unwrap()] {
                let is = |pragma| -> i64 {
                    connection.pragma_query_value(None, pragma, |row| row.get(0)).unwrap()
                };
                assert_eq!(is("synchronous"), synchronous as i64);
                let flushes = i64::from(synchronous == Synchronous::Full);
                assert_eq!([is("fullfsync"), is("checkpoint_fullfsync")], [flushes; 2]);
            }
        }
    }

    #[test]
    fn a_change_of_synchronous_that_sqlite_ignores_is_noticed() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("PRAGMA synchronous = FULL; BEGIN").unwrap();
        Synchronous::Normal.set(&connection).unwrap_err();
    }

    #[test]
    fn a_reader_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let _writer = writer(&path, Synchronous::Full).unwrap();
        let reader = reader(&path, Synchronous::Full).unwrap();
        reader.execute_batch("CREATE TABLE x (y)").unwrap_err();
    }

    #[test]
    fn paths_that_name_no_file_are_refused_with_advice() {
        let directory = tempfile::tempdir().unwrap();
        for (path, advice) in [
            (directory.path().to_owned(), "is a directory"),
            (directory.path().join("none/x.db"), "does not exist"),
            (":memory:".into(), "name of a file"),
            ("".into(), "names no file"),
        ] {
            let fault = locate(&path).unwrap_err();
            assert_eq!(fault.kind(), StoreErrorKind::Configuration);
            assert!(format!("{fault:?}").contains(advice), "{fault:?}");
        }
    }
}
