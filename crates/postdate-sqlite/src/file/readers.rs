//! Connections that read while the writer writes.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use postdate_core::StoreErrorKind;
use rusqlite::Connection;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::open::{self, Synchronous};
use crate::error::{Fault, Result};

/// How many read at once. More would only wait for each other on the disk.
const READERS: usize = 4;

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Somebody who waits for messages or sends them.
    Delivery,
    /// Somebody who looks at what is there, perhaps at very much.
    Operator,
}

/// A few read connections, opened when they are needed.
pub(crate) struct Readers {
    path: PathBuf,
    synchronous: Synchronous,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    /// One fewer: operators leave a connection to the delivery.
    operators: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, synchronous: Synchronous) -> Self {
        Self {
            path,
            synchronous,
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(READERS)),
            operators: Arc::new(Semaphore::new(READERS - 1)),
        }
    }

    /// Runs `query` on a thread that may block.
    pub(crate) async fn read<T, F>(&self, reader: Reader, query: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let turn = match reader {
            Reader::Delivery => None,
            Reader::Operator => Some(Arc::clone(&self.operators).acquire_owned().await),
        };
        let permits = (turn, Arc::clone(&self.permits).acquire_owned().await);
        let (path, synchronous, idle) = (self.path.clone(), self.synchronous, Arc::clone(&self.idle));
        let reading = spawn_blocking(move || {
            let _permits = permits;
            let spare = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match spare {
                Some(connection) => connection,
                None => open::reader(&path, synchronous)?,
            };
            let answer = query(&connection);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            answer
        });
        reading.await.unwrap_or_else(|_| {
            Err(Fault::new(
                StoreErrorKind::Other,
                "a read was stopped half-way; the runtime is shutting down",
            ))
        })
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use futures::future::{join_all, poll_immediate};
    use postdate_core::Operation;
    use tokio::time::timeout;

    use super::*;
    use crate::{Options, file::File};

    #[tokio::test]
    async fn those_who_look_leave_a_connection_to_those_who_deliver() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::open(&directory.path().join("x.db"), Options::new()).await.unwrap();
        let (mut reads, mut ends) = (Vec::new(), Vec::new());
        for _ in 0..READERS + 1 {
            let (end, wait) = mpsc::channel::<()>();
            let look = move |_: &Connection| {
                // Until the sender is dropped.
                wait.recv().ok();
                Ok(())
            };
            let mut read = Box::pin(file.read(Operation::Query, look));
            assert!(poll_immediate(&mut read).await.is_none());
            reads.push(read);
            ends.push(end);
        }
        let deliver = file.read(Operation::FetchDue, |_| Ok(()));
        timeout(Duration::from_secs(10), deliver).await.unwrap().unwrap();
        drop(ends);
        assert!(join_all(reads).await.iter().all(|read| read.is_ok()));
    }
}
