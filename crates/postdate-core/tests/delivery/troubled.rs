//! A store that fails or panics when it is told to.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, Backend, Cancellation, Capabilities, Claim, DelayedMessage, DelayedMessageStore, Due, DueBatch,
    EndpointName, Enlistment, Failure, FetchDue, ListQuery, Listing, Memory, MessageId, NextDue, Operation,
    Rescheduling, ScheduledMessage, ScheduledMessages, Stats, StoreError, StoreErrorKind, TransactionMode,
};

/// What the store is to do wrong, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) storing_fails: AtomicBool,
    pub(crate) fetching_panics: AtomicBool,
    pub(crate) removing_panics: AtomicBool,
    pub(crate) removing_fails: AtomicBool,
    pub(crate) fetches: AtomicUsize,
    /// With this it fails to store, if it fails.
    pub(crate) failing_with: Mutex<Option<StoreErrorKind>>,
    /// It panics over messages with this body.
    pub(crate) panics_over: Mutex<Option<&'static str>>,
    pub(crate) storing_takes: Mutex<Duration>,
    pub(crate) stores: AtomicUsize,
}

/// Memory, in trouble.
#[derive(Debug)]
pub(crate) struct Troubled(pub(crate) Memory, pub(crate) Arc<Trouble>);

#[derive(Debug)]
struct Store(Arc<dyn DelayedMessageStore>, Arc<Trouble>);

#[derive(Debug)]
struct TroubledClaim(Box<dyn Claim>, Arc<Trouble>);

fn failure(operation: Operation) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, operation, "troubled", "planted failure")
}

#[async_trait]
impl Backend for Troubled {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.0.set_up(endpoint).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        Ok(Arc::new(Store(self.0.open(endpoint, mode).await?, self.1.clone())))
    }
}

#[async_trait]
impl DelayedMessageStore for Store {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        self.1.stores.fetch_add(1, Relaxed);
        let takes = *self.1.storing_takes.lock().unwrap();
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if self.1.storing_fails.load(Relaxed) {
            let kind = self.1.failing_with.lock().unwrap().unwrap_or(StoreErrorKind::Unavailable);
            return Err(StoreError::new(kind, Operation::Store, "troubled", "planted failure"));
        }
        let panics_over = *self.1.panics_over.lock().unwrap();
        assert!(
            !messages.iter().any(|m| Some(&m.message.body[..]) == panics_over.map(str::as_bytes)),
            "planted"
        );
        self.0.store(messages).await
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        self.1.fetches.fetch_add(1, Relaxed);
        assert!(!self.1.fetching_panics.load(Relaxed), "planted panic");
        let mut batch = self.0.fetch_due(request).await?;
        batch.claim = Box::new(TroubledClaim(batch.claim, self.1.clone()));
        Ok(batch)
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        self.0.next_due(except).await
    }

    async fn changed(&self) {
        self.0.changed().await;
    }
}

#[async_trait]
impl Claim for TroubledClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        assert!(!self.1.removing_panics.load(Relaxed), "planted panic");
        if self.1.removing_fails.load(Relaxed) {
            return Err(failure(Operation::Remove));
        }
        self.0.remove(ids).await
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        self.0.increment_failure_count(failures).await
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        self.0.release(ids).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        self.0.renew().await
    }

    fn expires(&self) -> Option<Instant> {
        self.0.expires()
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        self.0.enlist()
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        self.0.commit().await
    }
}

#[async_trait]
impl ScheduledMessages for Store {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.0.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.0.list(query).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        self.0.cancel(ids).await
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        self.0.reschedule(id, due).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.0.stats().await
    }
}
