//! A file that children work on, and what is in it.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use postdate_core::{
    Address, Backend, DelayedMessage, DelayedMessageStore, Due, EndpointName, Filter, ListQuery, Message,
    QueuedMessage, Queues, TransactionMode,
};
use postdate_sqlite::Sqlite;

/// How many messages there are to drain: a child is killed long before it is through.
pub(crate) const BACKLOG: usize = 2_000;

pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With a backlog of due messages, and their queue.
    pub(crate) async fn filled() -> Self {
        let place = Self::new();
        place.create_queue().await;
        place.fill(&place.open().await).await;
        place
    }

    pub(crate) async fn create_queue(&self) {
        self.open().await.queues().create(&billing()).await.unwrap();
    }

    /// Fills it through a backend of this place.
    pub(crate) async fn fill(&self, backend: &dyn Backend) {
        let batch: Vec<_> = (0..BACKLOG).map(|_| message()).collect();
        orders(backend, TransactionMode::None).await.store(&batch).await.unwrap();
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory().join("postdate.db")
    }

    /// Waits until nobody has the file open: the last to close it deletes its log.
    pub(crate) async fn closed(&self) {
        let log = self.directory().join("postdate.db-wal");
        let deadline = Instant::now() + Duration::from_secs(10);
        while log.exists() {
            // Two that close at the same moment take each other for still open, and leave the log to whoever is next.
            let look = rusqlite::Connection::open(self.path());
            drop(look.and_then(|file| file.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))));
            assert!(Instant::now() < deadline, "the file is still open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn open(&self) -> Sqlite {
        Sqlite::open(self.path()).await.unwrap()
    }

    pub(crate) async fn store(&self) -> Arc<dyn DelayedMessageStore> {
        orders(&self.open().await, TransactionMode::ReceiveOnly).await
    }

    /// The ids of what is stored.
    pub(crate) async fn stored(&self) -> Vec<String> {
        let query = ListQuery::new(Filter::default(), limit(1_000_000));
        let listing = self.store().await.list(&query).await.unwrap();
        listing.messages.into_iter().map(|message| message.id.to_string()).collect()
    }

    /// What was sent.
    pub(crate) async fn sent(&self) -> Vec<QueuedMessage> {
        self.open().await.queues().browse(&billing(), 0, limit(1_000_000)).await.unwrap()
    }
}

pub(crate) async fn orders(backend: &dyn Backend, mode: TransactionMode) -> Arc<dyn DelayedMessageStore> {
    let endpoint = EndpointName::new("orders").unwrap();
    backend.set_up(&endpoint).await.unwrap();
    backend.open(&endpoint, mode).await.unwrap()
}

pub(crate) fn billing() -> Address {
    Address::new("billing").unwrap()
}

pub(crate) fn message() -> DelayedMessage {
    Message::new("body").to(billing(), Due::NOW)
}

pub(crate) fn limit(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}
