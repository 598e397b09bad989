//! The file as a backend.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use postdate_core::{
    Backend, Capabilities, ClaimKind, DelayedMessageStore, Dispatching, EndpointName, Operation, StoreError,
    TransactionMode,
};

use crate::{
    Durability, MAX_MESSAGE_BYTES, Options, Queues, error::Result, file::File, schema, store::SqliteStore,
    writer::Work,
};

/// Delayed messages in an SQLite file.
///
/// Clones share the open file: its writer thread, its claims, and the right to dispatch.
#[derive(Clone, Debug)]
pub struct Sqlite {
    file: Arc<File>,
    durability: Durability,
}

impl Sqlite {
    /// Opens a file with the default [`Options`], or creates it. Its directory must exist.
    ///
    /// # Errors
    /// When the path leads to no usable file: [`Configuration`](postdate_core::StoreErrorKind::Configuration), or
    /// [`Corrupt`](postdate_core::StoreErrorKind::Corrupt) for a file of another application, which stays
    /// untouched, or [`TooNew`](postdate_core::StoreErrorKind::TooNew).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::with_options(path, Options::new()).await
    }

    /// Opens a file, or creates it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn with_options(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        let durability = options.durability;
        Ok(Self { file: File::open(path.as_ref(), options).await?, durability })
    }

    /// The queues in the same file.
    pub fn queues(&self) -> Queues {
        Queues::new(Arc::clone(&self.file))
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(&TransactionMode::ALL, ClaimKind::Process)
            .max_message_bytes(MAX_MESSAGE_BYTES)
            .resolution(Duration::from_micros(1))
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        let endpoint = endpoint.clone();
        let set_up = move |tx: &mut crate::writer::Tx<'_>| schema::set_up(tx.connection, Some(&endpoint));
        self.file.write(Operation::SetUp, Work::Undoable, set_up).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let name = endpoint.clone();
        let number =
            self.file.read(Operation::Open, move |connection| schema::endpoint(connection, &name)).await?;
        Ok(Arc::new(SqliteStore::new(Arc::clone(&self.file), number, mode)))
    }

    async fn dispatching(&self, endpoint: &EndpointName) -> Result<Dispatching, StoreError> {
        let name = endpoint.clone();
        let look = move |tx: &mut crate::writer::Tx<'_>| {
            tx.shared.dispatching.of(schema::endpoint(tx.connection, &name)?).dispatching()
        };
        self.file.write(Operation::Query, Work::Plain, look).await
    }

    async fn warnings(&self) -> Result<Vec<String>, StoreError> {
        let warning = "durability is process-crash: a power failure may take messages that were acknowledged; \
                       leave the option out to keep them";
        Ok(match self.durability {
            Durability::PowerLoss => Vec::new(),
            Durability::ProcessCrash => vec![warning.to_owned()],
        })
    }
}
