//! A backend that counts how often its stores are asked for work.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, Backend, Cancellation, Capabilities, DelayedMessage, DelayedMessageStore, Due, DueBatch,
    EndpointName, FetchDue, ListQuery, Listing, MessageId, NextDue, Rescheduling, ScheduledMessage,
    ScheduledMessages, Stats, StoreError, TransactionMode,
};

/// A backend, and how often its stores were asked for due messages and due times.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    backend: Arc<dyn Backend>,
    calls: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct CountingStore {
    store: Arc<dyn DelayedMessageStore>,
    calls: Arc<AtomicUsize>,
}

impl Counting {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, calls: Arc::default() }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Relaxed)
    }
}

#[async_trait]
impl Backend for Counting {
    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.backend.set_up(endpoint).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let store = self.backend.open(endpoint, mode).await?;
        Ok(Arc::new(CountingStore { store, calls: Arc::clone(&self.calls) }))
    }
}

#[async_trait]
impl DelayedMessageStore for CountingStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        self.store.store(messages).await
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        self.calls.fetch_add(1, Relaxed);
        self.store.fetch_due(request).await
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        self.calls.fetch_add(1, Relaxed);
        self.store.next_due(except).await
    }

    async fn changed(&self) {
        self.store.changed().await;
    }
}

#[async_trait]
impl ScheduledMessages for CountingStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.store.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.store.list(query).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        self.store.cancel(ids).await
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        self.store.reschedule(id, due).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.store.stats().await
    }
}
