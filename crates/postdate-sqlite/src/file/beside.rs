//! The small files beside the database.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use crate::error::{Fault, Result};

/// A file beside the database, for one endpoint: whoever may use the one may use the other.
#[derive(Debug)]
pub(super) struct Beside {
    database: PathBuf,
    path: PathBuf,
}

impl Beside {
    /// The file for a purpose. Does not create it.
    pub(super) fn new(database: &Path, purpose: &str, endpoint: i64) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push(format!("-{purpose}-{endpoint}"));
        Self { database: database.to_owned(), path: name.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it to write to it, or creates it. In a write transaction.
    pub(super) fn open(&self) -> Result<File> {
        self.open_or_create().map_err(|error| self.fault(error))
    }

    pub(super) fn fault(&self, error: io::Error) -> Fault {
        Fault::beside(&self.path, error)
    }

    fn open_or_create(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        match options.write(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = options.create_new(true).open(&self.path)?;
                self.inherit(&file)?;
                Ok(file)
            }
            opened => opened,
        }
    }

    /// Gives a new file the owner and the mode of the database, as SQLite does with its own: one run by root must
    /// not lock the service out.
    #[cfg(unix)]
    fn inherit(&self, file: &File) -> io::Result<()> {
        use std::os::unix::fs::{MetadataExt, fchown};

        let (database, own) = (self.database.metadata()?, file.metadata()?);
        if (database.uid(), database.gid()) != (own.uid(), own.gid()) {
            match fchown(file, Some(database.uid()), Some(database.gid())) {
                // Only root can give a file away.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                given => given?,
            }
        }
        file.set_permissions(database.permissions())
    }

    /// Elsewhere a new file inherits from the directory.
    #[cfg(not(unix))]
    fn inherit(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
}
