//! Which file it is, whatever path led to it.

use std::{io, path::Path};

/// Two of these are equal if and only if one file is behind them: what is written in a transaction of one is in
/// the transaction of the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity(Key);

#[cfg(unix)]
type Key = (u64, u64);
#[cfg(not(unix))]
type Key = std::path::PathBuf;

impl FileIdentity {
    /// Only asks for metadata: opening the database as a plain file and closing it again would drop SQLite's
    /// own locks on it, for the whole process.
    #[cfg(unix)]
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let metadata = path.metadata()?;
        Ok(Self((metadata.dev(), metadata.ino())))
    }

    /// Elsewhere the canonical path stands for the file.
    #[cfg(not(unix))]
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        path.canonicalize().map(Self)
    }
}
