//! Directories whose SQLite files are watched and tampered with.

use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rusqlite::ffi;

use crate::{
    fault::{Armed, Call, Extent, Fault},
    log::{Entry, Inode, Log},
    vfs,
};

/// A directory whose SQLite files are on a disk of ours. Nothing in it waits for the real disk.
#[derive(Debug)]
pub struct Disk {
    directory: PathBuf,
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    log: Log,
    names: BTreeMap<String, Inode>,
    sizes: BTreeMap<Inode, u64>,
    fault: Option<Armed>,
    limit: Option<u64>,
    refused: u64,
    lies: bool,
    open: usize,
}

static DISKS: Mutex<Vec<Weak<Disk>>> = Mutex::new(Vec::new());

impl Disk {
    /// From now on SQLite files that are opened in this directory are on a disk of ours. What is there already is
    /// safe on it.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn attach(directory: &Path) -> io::Result<Arc<Self>> {
        vfs::install();
        let directory = directory.canonicalize()?;
        let mut state = State::default();
        for entry in fs::read_dir(&directory)? {
            let (path, inode) = (entry?.path(), state.new_inode());
            let Some(name) = name(&path).filter(|name| is_database(name)) else { continue };
            let content = fs::read(&path)?;
            state.sizes.insert(inode, content.len() as u64);
            state.log.contents.insert(inode, content);
            state.names.insert(name, inode);
        }
        state.log.names.clone_from(&state.names);
        let disk = Arc::new(Self { directory, state: Mutex::new(state), closed: Condvar::new() });
        let mut disks = lock(&DISKS);
        disks.retain(|disk| disk.strong_count() > 0);
        disks.push(Arc::downgrade(&disk));
        Ok(disk)
    }

    /// Has calls fail, in the place of an earlier fault.
    pub fn inject(&self, fault: Fault) {
        self.state().fault = Some(Armed::new(fault));
    }

    /// How many calls the last fault has let fail.
    pub fn fired(&self) -> u64 {
        self.state().fault.as_ref().map_or(0, |armed| armed.fired)
    }

    /// Ends the fault.
    pub fn heal(&self) {
        if let Some(armed) = &mut self.state().fault {
            armed.is_over = true;
        }
    }

    /// Has room for so many bytes in all files together, or for any number.
    pub fn limit(&self, bytes: Option<u64>) {
        self.state().limit = bytes;
    }

    /// How many bytes all files have together.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// How many writes did not fit.
    pub fn refused(&self) -> u64 {
        self.state().refused
    }

    /// From now on says that syncs were done and does none.
    pub fn lie(&self) {
        self.state().lies = true;
    }

    /// Remembers this moment in the log.
    pub fn mark(&self, mark: u64) {
        self.state().record(Entry::Mark(mark));
    }

    /// What has happened so far.
    pub fn log(&self) -> Log {
        self.state().log.clone()
    }

    /// Waits until no file is open any more. `false` if that takes longer than `patience`.
    pub fn wait_until_closed(&self, patience: Duration) -> bool {
        let waited = self.closed.wait_timeout_while(self.state(), patience, |state| state.open > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.open == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn ask(&self, call: Call) -> Result<(), c_int> {
        self.state().strikes(call).map_or(Ok(()), |(code, _)| Err(code))
    }

    pub(crate) fn deleted(&self, path: &Path, synced: bool) {
        let mut state = self.state();
        let Some(name) = name(path) else { return };
        if state.names.remove(&name).is_some() {
            state.record(Entry::Delete { name });
        }
        if synced {
            state.sync_directory();
        }
    }
}

/// The disk that a file is on, if it is on one of ours.
pub(crate) fn of(path: &Path) -> Option<Arc<Disk>> {
    let directory = path.parent()?;
    lock(&DISKS).iter().filter_map(Weak::upgrade).find(|disk| disk.directory == directory)
}

impl State {
    fn new_inode(&self) -> Inode {
        Inode(self.sizes.len() as u64)
    }

    fn record(&mut self, entry: Entry) {
        self.log.entries.push(entry);
    }

    fn sync_directory(&mut self) {
        if !self.lies {
            self.record(Entry::SyncDirectory);
        }
    }

    fn strikes(&mut self, call: Call) -> Option<(c_int, Extent)> {
        self.fault.as_mut().and_then(|armed| armed.strikes(call))
    }

    fn used(&self) -> u64 {
        self.names.values().filter_map(|inode| self.sizes.get(inode)).sum()
    }
}

/// A file of a disk that SQLite has open.
#[derive(Debug)]
pub(crate) struct DiskFile {
    disk: Arc<Disk>,
    inode: Inode,
    /// SQLite's own VFS syncs the directory with the first sync of a journal or log that it may have made.
    syncs_directory: Mutex<bool>,
}

impl DiskFile {
    /// A file that was just opened, and made by that if nobody knows its name.
    pub(crate) fn new(disk: Arc<Disk>, path: &Path, flags: c_int) -> Self {
        let name = name(path).unwrap_or_default();
        let mut state = disk.state();
        state.open += 1;
        let known = state.names.get(&name).copied();
        let inode = known.unwrap_or_else(|| {
            let inode = state.new_inode();
            state.sizes.insert(inode, 0);
            state.names.insert(name.clone(), inode);
            state.record(Entry::Create { name, inode });
            inode
        });
        drop(state);
        let is_journal = flags & (ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL) != 0;
        let syncs_directory = Mutex::new(is_journal && flags & ffi::SQLITE_OPEN_CREATE != 0);
        Self { disk, inode, syncs_directory }
    }

    pub(crate) fn ask(&self, call: Call) -> Result<(), c_int> {
        self.disk.ask(call)
    }

    /// How many bytes of a write may happen, and what it answers if that is not all of them.
    pub(crate) fn ask_write(&self, offset: u64, length: usize) -> (usize, Result<(), c_int>) {
        let mut state = self.disk.state();
        if let Some((code, extent)) = state.strikes(Call::Write) {
            return (if extent == Extent::Half { length / 2 } else { 0 }, Err(code));
        }
        let size = state.sizes.get(&self.inode).copied().unwrap_or(0);
        let growth = (offset + length as u64).saturating_sub(size);
        let room = state.limit.map_or(u64::MAX, |limit| limit.saturating_sub(state.used()));
        let missing = growth.saturating_sub(room);
        if missing == 0 {
            return (length, Ok(()));
        }
        state.refused += 1;
        (length.saturating_sub(usize::try_from(missing).unwrap_or(length)), Err(ffi::SQLITE_FULL))
    }

    pub(crate) fn wrote(&self, offset: u64, data: &[u8]) {
        let mut state = self.disk.state();
        let size = state.sizes.entry(self.inode).or_default();
        *size = (*size).max(offset + data.len() as u64);
        state.record(Entry::Write { inode: self.inode, offset, data: data.to_vec() });
    }

    pub(crate) fn truncated(&self, size: u64) {
        let mut state = self.disk.state();
        state.sizes.insert(self.inode, size);
        state.record(Entry::Truncate { inode: self.inode, size });
    }

    pub(crate) fn sync(&self) -> Result<(), c_int> {
        let mut state = self.disk.state();
        if let Some((code, _)) = state.strikes(Call::Sync) {
            state.record(Entry::FailedSync(self.inode));
            return Err(code);
        }
        if state.lies {
            return Ok(());
        }
        state.record(Entry::Sync(self.inode));
        if std::mem::take(&mut *lock(&self.syncs_directory)) {
            state.sync_directory();
        }
        Ok(())
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        self.disk.state().open -= 1;
        self.disk.closed.notify_all();
    }
}

/// The shared index of the log is memory, and other files are not SQLite's.
fn is_database(name: &str) -> bool {
    [".db", "-wal", "-journal"].iter().any(|end| name.ends_with(end))
}

fn name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
