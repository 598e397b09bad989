//! From what went wrong inside to the errors that callers see.

use std::{borrow::Cow, error::Error, io, sync::Arc};

use postdate_core::{Operation, StoreError, StoreErrorKind};
use rusqlite::ErrorCode;

/// What went wrong in a piece of work, before it is known to which operation that belongs.
///
/// It can be cloned because one failed commit fails everything that shared the transaction.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    kind: StoreErrorKind,
    detail: Cow<'static, str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    pub(crate) fn new(kind: StoreErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    pub(crate) fn no_such_queue(queue: impl std::fmt::Display) -> Self {
        Self::new(StoreErrorKind::NoSuchQueue, missing_queue(queue))
    }

    /// A failure with one of the small files beside the database.
    pub(crate) fn beside(file: &std::path::Path, error: io::Error) -> Self {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (StoreErrorKind::Full, "free some space; nothing that was stored is lost")
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (StoreErrorKind::Configuration, "give this user write access to it and to its directory")
            }
            io::ErrorKind::InvalidFilename => {
                (StoreErrorKind::Configuration, "choose a shorter or simpler name")
            }
            _ => (StoreErrorKind::Unavailable, "look at the disk and try again"),
        };
        let mut fault = Self::new(kind, format!("cannot use {}: {error}; {advice}", file.display()));
        fault.source = Some(Arc::new(error));
        fault
    }

    pub(crate) fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    pub(crate) fn into_error(self, operation: Operation, store: &str) -> StoreError {
        let error = StoreError::new(self.kind, operation, store.to_owned(), self.detail);
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

/// What to say where a queue is missing.
pub(crate) fn missing_queue(queue: impl std::fmt::Display) -> String {
    format!("queue `{queue}` does not exist; create it with `postdate queue create {queue}`")
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, detail) = explain(&error);
        Self { kind, detail, source: Some(Arc::new(error)) }
    }
}

fn explain(error: &rusqlite::Error) -> (StoreErrorKind, Cow<'static, str>) {
    use StoreErrorKind as Kind;

    let text = error.to_string();
    // Growing the shared memory beside the database fails with a code of its own when the disk is full.
    if error.sqlite_error().is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE) {
        return (Kind::Full, FULL.into());
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (Kind::Full, FULL.into()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (Kind::Unavailable, "another process kept the file locked; try again".into())
        }
        // None of these is the fault of what was asked for.
        Some(ErrorCode::OutOfMemory | ErrorCode::FileLockingProtocolFailed) => {
            (Kind::Unavailable, format!("{text}; try again").into())
        }
        Some(ErrorCode::SystemIoFailure) => {
            (Kind::Unavailable, format!("{text}; look at the disk and try again").into())
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            Kind::Configuration,
            "the file or its directory is read-only; give this user write access".into(),
        ),
        Some(ErrorCode::CannotOpen) => (
            Kind::Configuration,
            "the file cannot be opened; give this user write access to its directory".into(),
        ),
        Some(ErrorCode::NotADatabase) => {
            (Kind::Corrupt, "this is not a postdate file; nothing was changed, choose another path".into())
        }
        Some(ErrorCode::DatabaseCorrupt) => (
            Kind::Corrupt,
            "the file is damaged; stop all processes, keep a copy, and restore a backup or run `.recover`"
                .into(),
        ),
        Some(ErrorCode::TooBig) => {
            (Kind::TooLarge, "the message is too large; store its content elsewhere".into())
        }
        _ if text.contains("no such table") => {
            (Kind::NotSetUp, "the file has not been set up; run `postdate setup` or call `set_up`".into())
        }
        _ => (Kind::Other, text.into()),
    }
}

const FULL: &str = "the disk is full; free some space, nothing that was stored is lost";

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn every_failure_has_its_kind_and_says_what_to_do() {
        for (code, kind, advice) in [
            (ffi::SQLITE_FULL, StoreErrorKind::Full, "free some space"),
            (ffi::SQLITE_IOERR_SHMSIZE, StoreErrorKind::Full, "free some space"),
            (ffi::SQLITE_BUSY, StoreErrorKind::Unavailable, "try again"),
            (ffi::SQLITE_PROTOCOL, StoreErrorKind::Unavailable, "try again"),
            (ffi::SQLITE_NOMEM, StoreErrorKind::Unavailable, "try again"),
            (ffi::SQLITE_IOERR_FSYNC, StoreErrorKind::Unavailable, "look at the disk"),
            (ffi::SQLITE_READONLY, StoreErrorKind::Configuration, "write access"),
            (ffi::SQLITE_CANTOPEN, StoreErrorKind::Configuration, "write access"),
            (ffi::SQLITE_NOTADB, StoreErrorKind::Corrupt, "choose another path"),
            (ffi::SQLITE_CORRUPT, StoreErrorKind::Corrupt, "restore a backup"),
        ] {
            let fault = Fault::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
            let error = fault.into_error(Operation::Store, "sqlite:x.db");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().starts_with("sqlite:x.db: store: "), "{error}");
            assert!(error.to_string().contains(advice), "{error}");
        }
    }

    #[test]
    fn a_missing_table_means_that_nobody_set_the_file_up() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let fault = Fault::from(connection.prepare("SELECT * FROM message").unwrap_err());
        assert_eq!(fault.kind(), StoreErrorKind::NotSetUp);
    }
}
