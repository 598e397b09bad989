//! One open file: a thread that writes, connections that read, and what its users share.

mod beside;
mod claims_file;
mod dispatch_lock;
mod dispatching;
mod identity;
mod in_flight;
mod network;
mod open;
mod readers;
mod watch;

use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use jiff::Timestamp;
use postdate_core::{Clock, Operation, StoreError, StoreErrorKind, wake::Wakes};
use rusqlite::Connection;
use tokio::{sync::oneshot, task::spawn_blocking};

pub(crate) use dispatching::Dispatching;
pub(crate) use identity::FileIdentity;
pub(crate) use in_flight::InFlight;
pub(crate) use open::locate;

use crate::{
    Options,
    error::{Fault, Result},
    writer::{Tx, Work, Writer},
};
use open::Synchronous;
use readers::{Reader, Readers};
use watch::Watch;

/// An open file. Everything that was opened from one [`Sqlite`](crate::Sqlite) shares it.
pub(crate) struct File {
    name: Arc<str>,
    identity: FileIdentity,
    path: PathBuf,
    shared: Arc<Shared>,
    writer: Writer,
    readers: Readers,
    watch: OnceLock<Watch>,
}

/// What the writer thread knows as well.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dispatching: Dispatching,
    pub(crate) wakes: Wakes,
    /// How many transactions have looked whether others have committed.
    pub(crate) looks: AtomicU64,
}

impl File {
    /// Opens or creates the file, without making tables in it.
    pub(crate) async fn open(path: &Path, options: Options) -> Result<Arc<Self>, StoreError> {
        let name: Arc<str> = format!("sqlite:{}", path.display()).into();
        let path = path.to_owned();
        let opening = spawn_blocking({
            let name = Arc::clone(&name);
            move || Self::open_blocking(name, &path, options)
        });
        let opened = opening.await.unwrap_or_else(|_| {
            Err(Fault::new(
                StoreErrorKind::Other,
                "opening was stopped half-way; the runtime is shutting down",
            ))
        });
        opened.map(Arc::new).map_err(|fault| fault.into_error(Operation::Connect, &name))
    }

    fn open_blocking(name: Arc<str>, path: &Path, options: Options) -> Result<Self> {
        let path = locate(path)?;
        let synchronous = Synchronous::from(options.durability);
        let connection = open::writer(&path, synchronous)?;
        let identity = FileIdentity::of(&path).map_err(|error| Fault::beside(&path, error))?;
        let dispatching = Dispatching::new(&path);
        let shared = Arc::new(Shared {
            clock: options.clock,
            dispatching,
            wakes: Wakes::default(),
            looks: AtomicU64::new(0),
        });
        let writer = Writer::start(connection, Arc::clone(&shared)).map_err(|error| {
            Fault::new(StoreErrorKind::Unavailable, format!("cannot start the writer thread: {error}"))
        })?;
        let readers = Readers::new(path.clone(), synchronous);
        Ok(Self { name, identity, path, shared, writer, readers, watch: OnceLock::new() })
    }

    /// Does `run` in a write transaction that others may share, and answers after its commit.
    ///
    /// Dropping the future before `run` has begun means that it never will.
    pub(crate) async fn write<T, F>(&self, operation: Operation, work: Work, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        self.answer(operation, self.writer.submit(work, run)).await
    }

    async fn answer<T>(
        &self,
        operation: Operation,
        answer: oneshot::Receiver<Result<T>>,
    ) -> Result<T, StoreError> {
        let answer = answer.await.unwrap_or_else(|_| {
            Err(Fault::new(StoreErrorKind::Other, "the writer thread has stopped; open the file again"))
        });
        answer.map_err(|fault| fault.into_error(operation, &self.name))
    }

    /// Does `run` in a write transaction some time soon; nobody is told how it went.
    pub(crate) fn write_unasked<F>(&self, work: Work, run: F)
    where
        F: FnOnce(&mut Tx<'_>) -> Result<()> + Send + 'static,
    {
        self.writer.submit_unasked(work, run);
    }

    /// Reads, without waiting for the writer.
    pub(crate) async fn read<T, F>(&self, operation: Operation, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let reader = match operation {
            Operation::Query | Operation::Administer => Reader::Operator,
            _ => Reader::Delivery,
        };
        self.readers.read(reader, query).await.map_err(|fault| fault.into_error(operation, &self.name))
    }

    /// The messages of an endpoint that are held, here or in another process.
    pub(crate) async fn held(
        &self,
        operation: Operation,
        in_flight: &Arc<InFlight>,
    ) -> Result<HashSet<i64>, StoreError> {
        if in_flight.has_lock() {
            let held = in_flight.view().map(|view| view.to_set());
            return held.map_err(|fault| fault.into_error(operation, &self.name));
        }
        let in_flight = Arc::clone(in_flight);
        self.write(operation, Work::Plain, move |_| Ok(in_flight.view()?.to_set())).await
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    pub(crate) fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// An error of ours.
    pub(crate) fn error(&self, fault: Fault, operation: Operation) -> StoreError {
        fault.into_error(operation, &self.name)
    }

    /// From now on, notices what other processes commit.
    pub(crate) fn watch(self: &Arc<Self>) {
        self.watch.get_or_init(|| Watch::start(&self.path, Arc::downgrade(self)));
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.name).finish()
    }
}
