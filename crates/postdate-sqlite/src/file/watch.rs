//! Noticing what other processes commit.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Weak, atomic::Ordering},
    thread,
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::File;
use crate::writer::Work;

/// Commits that follow each other so closely are noticed together.
const DEBOUNCE: Duration = Duration::from_millis(2);

/// How often to look where the operating system does not tell.
const POLL: Duration = Duration::from_millis(250);

/// Watches the write-ahead log: every commit writes to it. Whether the commit was somebody else's is found out by
/// the writer thread, whose connection knows its own. Ends when it is dropped.
pub(crate) struct Watch {
    _source: Source,
}

enum Source {
    System(#[expect(dead_code, reason = "watches as long as it lives")] RecommendedWatcher),
    Polling,
}

impl Watch {
    /// Watches for `file`, by polling if need be.
    pub(crate) fn start(path: &Path, file: Weak<File>) -> Self {
        let source = match watch_log(path, Weak::clone(&file)) {
            Ok(watcher) => {
                // What was committed before the system began to watch made no event.
                look(&file);
                Source::System(watcher)
            }
            Err(error) => {
                tracing::info!(%error, "cannot watch for commits of other processes: looking every 250 ms");
                poll(file);
                Source::Polling
            }
        };
        Self { _source: source }
    }
}

fn watch_log(path: &Path, file: Weak<File>) -> notify::Result<RecommendedWatcher> {
    // Windows tells of writes to an open file late: when its cache is flushed.
    if cfg!(windows) {
        return Err(notify::Error::generic("this system tells of writes too late"));
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        let looks = looks(&file);
        // The system merges what comes while this thread sleeps.
        thread::sleep(DEBOUNCE);
        // A transaction that began meanwhile has looked already: mostly the event was of our own making.
        if looks == self::looks(&file) {
            look(&file);
        }
    })?;
    watcher.watch(&PathBuf::from(log), RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

fn poll(file: Weak<File>) {
    // Without a thread nothing is noticed early, and callers cap their waits anyway.
    drop(thread::Builder::new().name("postdate-watch".to_owned()).spawn(move || {
        while look(&file) {
            thread::sleep(POLL);
        }
    }));
}

/// How many transactions have looked.
fn looks(file: &Weak<File>) -> u64 {
    file.upgrade().map_or(0, |file| file.shared.looks.load(Ordering::SeqCst))
}

/// Has the writer begin a transaction, by which it sees whether others have committed. The log is written to
/// before the commit is done, but its author holds the lock on writing until it is: this waits for that. `false`
/// if the file is closed.
fn look(file: &Weak<File>) -> bool {
    let Some(file) = file.upgrade() else { return false };
    file.write_unasked(Work::Plain, |_| Ok(()));
    true
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::timeout;

    use super::*;
    use postdate_core::wake::Topic;

    use crate::Options;

    /// A file and a raw connection of somebody else's.
    async fn scene() -> (tempfile::TempDir, Arc<File>, rusqlite::Connection) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let file = File::open(&path, Options::new()).await.unwrap();
        let other = rusqlite::Connection::open(path).unwrap();
        (directory, file, other)
    }

    #[cfg(not(windows))]
    #[tokio::test]
    async fn the_system_tells_of_commits() {
        let (_directory, file, _other) = scene().await;
        let watch = Watch::start(&file.path, Arc::downgrade(&file));
        assert!(matches!(watch._source, Source::System(_)), "it is polled");
    }

    #[tokio::test]
    async fn where_it_does_not_commits_are_noticed_all_the_same() {
        let (_directory, file, other) = scene().await;
        let wake = file.shared().wakes.join(Topic::Queue(1));
        poll(Arc::downgrade(&file));
        other.execute_batch("CREATE TABLE x (y)").unwrap();
        timeout(Duration::from_secs(10), wake.changed()).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_closed_is_watched_no_more() {
        let (_directory, file, _other) = scene().await;
        let watched = Arc::downgrade(&file);
        assert!(look(&watched));
        drop(file);
        assert!(!look(&watched));
    }
}
