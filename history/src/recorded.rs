//! A backend and a dispatcher that write down what passes through them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, Backend, Cancellation, Capabilities, Claim, DelayedMessage, DelayedMessageStore, DispatchError,
    DispatchErrorKind, Dispatcher, Dispatching, Due, DueBatch, EndpointName, Enlistment, Failure, FetchDue,
    ListQuery, Listing, MessageId, NextDue, OutgoingMessage, Rescheduling, ScheduledMessage,
    ScheduledMessages, Stats, StoreError, TransactionMode,
};

use crate::{Refusal, Way, What, file::Recorder, later, words::signed};

/// A backend, recorded.
#[derive(Debug)]
pub struct RecordedBackend {
    inner: Arc<dyn Backend>,
    recorder: Arc<Recorder>,
}

/// A dispatcher, recorded.
#[derive(Debug)]
pub struct RecordedDispatcher {
    inner: Arc<dyn Dispatcher>,
    way: Way,
    recorder: Arc<Recorder>,
}

#[derive(Debug)]
struct RecordedStore {
    inner: Arc<dyn DelayedMessageStore>,
    mode: TransactionMode,
    recorder: Arc<Recorder>,
    claims: AtomicU64,
}

#[derive(Debug)]
struct RecordedClaim {
    /// None when it has ended.
    inner: Option<Box<dyn Claim>>,
    number: u64,
    recorder: Arc<Recorder>,
    /// What is done when it commits, if nothing is done before.
    changes: Option<Vec<What>>,
}

impl RecordedBackend {
    /// Writes down what passes through `inner`. Every message must be stored once only.
    pub fn new(inner: impl Backend, recorder: Arc<Recorder>) -> Self {
        Self { inner: Arc::new(inner), recorder }
    }
}

impl RecordedDispatcher {
    /// Writes down what `inner` sends, to destinations or to the error queue.
    pub fn new(inner: impl Dispatcher, way: Way, recorder: Arc<Recorder>) -> Self {
        Self { inner: Arc::new(inner), way, recorder }
    }
}

#[async_trait]
impl Backend for RecordedBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.inner.set_up(endpoint).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let inner = self.inner.open(endpoint, mode).await?;
        Ok(Arc::new(RecordedStore {
            inner,
            mode,
            recorder: self.recorder.clone(),
            claims: AtomicU64::new(0),
        }))
    }

    async fn dispatching(&self, endpoint: &EndpointName) -> Result<Dispatching, StoreError> {
        self.inner.dispatching(endpoint).await
    }
}

impl RecordedStore {
    /// A number that no other process uses.
    fn next_claim(&self) -> u64 {
        let process = u64::from(self.recorder.process().unwrap_or(u32::MAX));
        (process << 32) + self.claims.fetch_add(1, Relaxed)
    }
}

#[async_trait]
impl DelayedMessageStore for RecordedStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        self.recorder.record_all(messages.iter().map(|message| What::attempted(message, None)));
        let dues = self.inner.store(messages).await?;
        let acknowledged = |(DelayedMessage { message, .. }, due): (&DelayedMessage, &Timestamp)| {
            What::Acknowledged { id: message.id.to_string(), due: *due }
        };
        self.recorder.record_all(messages.iter().zip(&dues).map(acknowledged));
        Ok(dues)
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        let batch = self.inner.fetch_due(request).await?;
        let number = self.next_claim();
        let until = until(&*batch.claim);
        if !batch.messages.is_empty() {
            self.recorder.record(What::fetched(number, until, &batch.messages));
        }
        let claim = RecordedClaim {
            inner: Some(batch.claim),
            number,
            recorder: self.recorder.clone(),
            changes: (self.mode == TransactionMode::TransactionScope).then(Vec::new),
        };
        Ok(DueBatch { claim: Box::new(claim), ..batch })
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        self.inner.next_due(except).await
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }
}

#[async_trait]
impl ScheduledMessages for RecordedStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.inner.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.inner.list(query).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        let answers = self.inner.cancel(ids).await?;
        self.recorder.record_all(ids.iter().zip(&answers).map(|(id, answer)| What::cancelled(id, *answer)));
        Ok(answers)
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        let answer = self.inner.reschedule(id, due).await?;
        self.recorder.record(What::rescheduled(id, answer));
        Ok(answer)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }
}

impl RecordedClaim {
    fn inner(&mut self) -> &mut dyn Claim {
        &mut **self.inner.as_mut().expect("it ends with `commit`, which takes it, and with its drop")
    }

    fn change(&mut self, what: What) {
        match &mut self.changes {
            Some(changes) => changes.push(what),
            None => self.recorder.record(what),
        }
    }
}

#[async_trait]
impl Claim for RecordedClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        let held = self.inner().remove(ids).await?;
        self.change(What::removed(self.number, ids, &held));
        Ok(held)
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let from = Timestamp::now();
        let held = self.inner().increment_failure_count(failures).await?;
        self.change(What::failed(self.number, from, failures, &held));
        Ok(held)
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        // What is given up is written down before, what is got afterwards.
        self.recorder.record(What::released(self.number, ids));
        self.inner().release(ids).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        self.inner().renew().await?;
        if let Some(until) = until(self.inner()) {
            self.recorder.record(What::Renewed { claim: self.number, until });
        }
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.inner.as_ref().and_then(|claim| claim.expires())
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        self.inner().enlist()
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        let claim = self.number;
        let Some(inner) = self.inner.take() else { return Ok(()) };
        let Some(mut changes) = self.changes.take() else {
            self.recorder.record(What::Committed { claim });
            return inner.commit().await;
        };
        let committed = inner.commit().await;
        if committed.is_ok() {
            changes.push(What::Committed { claim });
            self.recorder.record_all(changes);
        } else {
            self.recorder.record(What::Dropped { claim });
        }
        committed
    }
}

impl Drop for RecordedClaim {
    fn drop(&mut self) {
        if self.inner.is_some() {
            self.recorder.record(What::Dropped { claim: self.number });
        }
    }
}

#[async_trait]
impl Dispatcher for RecordedDispatcher {
    async fn joins(&self, transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        self.inner.joins(transaction).await
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        within: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        self.recorder.record(What::sending(messages, self.way));
        let outcomes = self.inner.dispatch(messages, within).await;
        let refused = messages.iter().zip(&outcomes).filter_map(|(message, outcome)| {
            let why = match outcome.as_ref().err()?.kind() {
                DispatchErrorKind::Unavailable => return None,
                DispatchErrorKind::NoDestination => Refusal::NoDestination,
                DispatchErrorKind::Rejected => Refusal::Rejected,
            };
            Some(What::Refused { id: message.id.to_string(), why })
        });
        self.recorder.record_all(refused.chain([What::told(messages, &outcomes)]));
        outcomes
    }
}

/// When a lease ends, by the clock that the recorder writes.
fn until(claim: &dyn Claim) -> Option<Timestamp> {
    let left = claim.expires()?.saturating_duration_since(Instant::now());
    Some(later(Timestamp::now(), signed(left)))
}
