//! From what went wrong with files to the errors that callers see.

use std::{borrow::Cow, io};

use postdate_core::{Operation, StoreError, StoreErrorKind};

/// What went wrong in a step, before it is known to which operation that belongs.
#[derive(Debug)]
pub(crate) struct Fault {
    kind: StoreErrorKind,
    detail: Cow<'static, str>,
    source: Option<io::Error>,
}

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    pub(crate) fn new(kind: StoreErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    pub(crate) fn into_error(self, operation: Operation, store: &str) -> StoreError {
        let error = StoreError::new(self.kind, operation, store.to_owned(), self.detail);
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

/// A kind decides what the engine does: it tries again after `Unavailable` and `Full`, and no message is to blame.
impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                (StoreErrorKind::Full, "free some space; nothing that was stored is lost")
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (StoreErrorKind::Configuration, "give this user write access to the directory")
            }
            _ => (StoreErrorKind::Unavailable, "look at the disk and try again"),
        };
        Self { kind, detail: format!("{error}; {advice}").into(), source: Some(error) }
    }
}
