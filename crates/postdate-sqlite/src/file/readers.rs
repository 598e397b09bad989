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

/// A few read connections, opened when they are needed.
pub(crate) struct Readers {
    path: PathBuf,
    synchronous: Synchronous,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, synchronous: Synchronous) -> Self {
        Self { path, synchronous, idle: Arc::default(), permits: Arc::new(Semaphore::new(READERS)) }
    }

    /// Runs `query` on a thread that may block.
    pub(crate) async fn read<T, F>(&self, query: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let (path, synchronous, idle) = (self.path.clone(), self.synchronous, Arc::clone(&self.idle));
        let reading = spawn_blocking(move || {
            let _permit = permit;
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
