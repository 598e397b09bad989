//! What happened to the files of a disk.

use std::collections::BTreeMap;

/// A file, whatever its name: deleting one and making another of the same name makes another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

/// Something that happened, in order.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A file was made.
    Create {
        /// Its name in the directory.
        name: String,
        /// Which it is.
        inode: Inode,
    },
    /// A name was taken out of the directory.
    Delete {
        /// The name.
        name: String,
    },
    /// Bytes were written.
    Write {
        /// To this file.
        inode: Inode,
        /// From this byte on.
        offset: u64,
        /// What was written.
        data: Vec<u8>,
    },
    /// A file was cut or filled up to a size.
    Truncate {
        /// The file.
        inode: Inode,
        /// Its size in bytes from then on.
        size: u64,
    },
    /// All that had been written to a file was safe.
    Sync(Inode),
    /// It was to be made safe and that failed. What was written before is not tried again by later syncs, as on
    /// Linux: it counts as written from then on.
    FailedSync(Inode),
    /// The directory was safe: which files there are.
    SyncDirectory,
    /// The user of the disk wanted to remember this moment.
    Mark(u64),
}

/// The files as they were, and what happened to them since.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub(crate) names: BTreeMap<String, Inode>,
    pub(crate) contents: BTreeMap<Inode, Vec<u8>>,
    pub(crate) entries: Vec<Entry>,
}

impl Log {
    /// All that happened.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The marks that were set before the entry of this number, in order.
    pub fn marks(&self, before: usize) -> impl Iterator<Item = u64> {
        self.entries[..before].iter().filter_map(|entry| match entry {
            Entry::Mark(mark) => Some(*mark),
            _ => None,
        })
    }
}
