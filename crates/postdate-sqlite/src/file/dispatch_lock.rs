//! The right to dispatch for an endpoint, which one holder has at a time.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use super::beside::Beside;
use crate::error::Result;

/// A lock of the operating system on a file beside the database: a crash frees it at once.
///
/// It is taken and probed only within write transactions of the database, so that a probe never looks like a
/// holder to somebody who tries to take it.
#[derive(Debug)]
pub(crate) struct DispatchLock {
    file: Beside,
    held: Mutex<Option<File>>,
}

impl DispatchLock {
    /// For an endpoint of a database.
    pub(crate) fn new(database: &Path, endpoint: i64) -> Self {
        Self { file: Beside::new(database, "dispatch", endpoint), held: Mutex::new(None) }
    }

    /// Takes the lock unless somebody else has it. `true` if it was taken now or before.
    pub(crate) fn take(&self) -> Result<bool> {
        let mut held = self.held();
        if held.is_some() {
            return Ok(true);
        }
        let file = self.file.open()?;
        match file.try_lock() {
            Ok(()) => {
                *held = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(self.file.fault(error)),
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.held().is_some()
    }

    /// Whether somebody else has it.
    pub(crate) fn is_theirs(&self) -> Result<bool> {
        if self.is_ours() {
            return Ok(false);
        }
        let file = match File::open(self.file.path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.file.fault(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(self.file.fault(error)),
        }
    }

    /// Frees it for others.
    pub(crate) fn free(&self) {
        self.held().take();
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_freed_when_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("x.db");
        std::fs::write(&database, b"").unwrap();
        let (one, two) = (DispatchLock::new(&database, 1), DispatchLock::new(&database, 1));
        assert!(!two.is_theirs().unwrap(), "nobody has it");
        assert!(one.take().unwrap() && one.take().unwrap());
        assert!(two.is_theirs().unwrap());
        assert!(!two.take().unwrap());
        drop(one);
        assert!(!two.is_theirs().unwrap());
        assert!(two.take().unwrap());
    }
}
