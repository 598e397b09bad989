//! The right to dispatch for an endpoint, which one holder has at a time.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use crate::error::{Fault, Result};

/// A lock of the operating system on a file beside the database: a crash frees it at once.
///
/// It is taken and probed only within write transactions of the database, so that a probe never looks like a
/// holder to somebody who tries to take it.
#[derive(Debug)]
pub(crate) struct DispatchLock {
    path: PathBuf,
    held: Mutex<Option<File>>,
}

impl DispatchLock {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, held: Mutex::new(None) }
    }

    /// Takes the lock unless somebody else has it. `true` if it was taken now or before.
    pub(crate) fn take(&self) -> Result<bool> {
        let mut held = self.held();
        if held.is_some() {
            return Ok(true);
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path);
        let file = file.map_err(|error| self.fault(error))?;
        match file.try_lock() {
            Ok(()) => {
                *held = Some(file);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(self.fault(error)),
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
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.fault(error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(self.fault(error)),
        }
    }

    /// Frees it for others.
    pub(crate) fn free(&self) {
        self.held().take();
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, error: io::Error) -> Fault {
        Fault::beside(&self.path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_freed_when_it_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db-dispatch");
        let (one, two) = (DispatchLock::new(path.clone()), DispatchLock::new(path));
        assert!(!two.is_theirs().unwrap(), "nobody has it");
        assert!(one.take().unwrap() && one.take().unwrap());
        assert!(two.is_theirs().unwrap());
        assert!(!two.take().unwrap());
        drop(one);
        assert!(!two.is_theirs().unwrap());
        assert!(two.take().unwrap());
    }
}
