//! The reference backend with a fault that no single call shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex as SyncMutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_conformance::Place;
use postdate_core::{
    Address, Backend, Cancellation, Capabilities, Claim, ClaimKind, DelayedMessage, DelayedMessageStore, Due,
    DueBatch, DueMessage, EndpointName, Enlistment, Failure, FetchDue, Filter, ListQuery, Listing, Memory,
    MessageId, MessageState, NextDue, Operation, Rescheduling, ScheduledMessage, ScheduledMessages,
    ScheduledSummary, Stats, StoreError, StoreErrorKind, TransactionMode,
};
use tokio::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    RepeatingReschedules,
    ComparesWhatBecame,
    LimitsBeforeExcepting,
    CommitCounts,
    AnswersBackwards,
    RescheduleForgets,
    PagesSkipTies,
    NextDueIgnoresExceptions,
    ReopeningForgets,
    ReleasesOthers,
    StoresBitByBit,
    CancelTellsWhatWasSeen,
    RemovesAfterItsLease,
    SettlesOnCommitOnly,
    SettlesAPartAtOnce,
}

/// How many handles a check opens before it reopens any.
const HANDLES: u64 = 3;

#[derive(Debug)]
pub(crate) struct FaultyBackend {
    memory: Memory,
    number: u64,
    endpoints: Endpoints,
    fault: Fault,
}

type Endpoints = Arc<SyncMutex<BTreeMap<EndpointName, Claims>>>;

/// All claims of an endpoint: what a store without a fence lets each other touch.
type Claims = Arc<Mutex<Vec<SharedClaim>>>;
type SharedClaim = Arc<Mutex<Option<Box<dyn Claim>>>>;

#[derive(Debug)]
struct FaultyStore {
    store: Arc<dyn DelayedMessageStore>,
    claims: Claims,
    last_shown: SyncMutex<Option<Timestamp>>,
    fault: Fault,
}

#[derive(Debug)]
struct FaultyClaim {
    store: Arc<dyn DelayedMessageStore>,
    claims: Claims,
    claim: SharedClaim,
    expires: Option<Instant>,
    held: BTreeSet<MessageId>,
    fault: Fault,
}

impl FaultyBackend {
    pub(crate) fn new(memory: Memory, place: &Place, fault: Fault) -> Self {
        let opened = place.shared(|| Arc::new(AtomicU64::new(0)));
        let endpoints = place.shared(Endpoints::default);
        Self { memory, number: opened.fetch_add(1, Relaxed), endpoints, fault }
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.memory.capabilities();
        capabilities.modes = &[TransactionMode::ReceiveOnly];
        capabilities.durable = self.fault == Fault::ReopeningForgets;
        if self.fault == Fault::SettlesAPartAtOnce {
            capabilities.claim = ClaimKind::Transaction;
        }
        capabilities
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.memory.set_up(endpoint).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let mode = match self.fault {
            Fault::SettlesOnCommitOnly => TransactionMode::TransactionScope,
            _ => mode,
        };
        let store = self.memory.open(endpoint, mode).await?;
        if self.fault == Fault::ReopeningForgets && self.number >= HANDLES {
            let mut query = ListQuery::new(Filter::default(), 100.try_into().expect("it is not zero"));
            query.filter.min_failures = 1;
            let failed: Vec<_> = store.list(&query).await?.messages.into_iter().map(|line| line.id).collect();
            store.cancel(&failed).await?;
        }
        let mut endpoints = self.endpoints.lock().expect("nobody panics");
        let claims = Arc::clone(endpoints.entry(endpoint.clone()).or_default());
        Ok(Arc::new(FaultyStore { store, claims, last_shown: SyncMutex::default(), fault: self.fault }))
    }
}

impl FaultyStore {
    async fn is_new(&self, message: &DelayedMessage) -> Result<bool, StoreError> {
        Ok(self.store.get(&message.message.id).await?.is_none())
    }

    async fn store_bit_by_bit(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        let ids: BTreeSet<_> = messages.iter().map(|message| &message.message.id).collect();
        let mut is_simple = ids.len() == messages.len();
        for message in messages {
            is_simple &= self.is_new(message).await? && message.due != Due::after(Duration::MAX);
        }
        if !is_simple {
            return self.store.store(messages).await;
        }
        let mut stored = Vec::new();
        for message in messages {
            stored.extend(self.store.store(std::slice::from_ref(message)).await?);
            tokio::task::yield_now().await;
        }
        Ok(stored)
    }
}

#[async_trait]
impl DelayedMessageStore for FaultyStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        match self.fault {
            Fault::StoresBitByBit => return self.store_bit_by_bit(messages).await,
            Fault::ComparesWhatBecame => {
                for message in messages {
                    let seen = self.store.get(&message.message.id).await?;
                    if seen.is_some_and(|seen| matches!(message.due, Due::At(due) if due != seen.message.due))
                    {
                        let (kind, operation) = (StoreErrorKind::Conflict, Operation::Store);
                        return Err(StoreError::new(kind, operation, "faulty", "planted"));
                    }
                }
            }
            _ => {}
        }
        let stored = self.store.store(messages).await?;
        if self.fault == Fault::RepeatingReschedules {
            for message in messages.iter().filter(|message| matches!(message.due, Due::At(_))) {
                self.store.reschedule(&message.message.id, message.due).await?;
            }
        }
        Ok(stored)
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        let mut batch = if self.fault == Fault::LimitsBeforeExcepting {
            let mut batch = self.store.fetch_due(FetchDue { except: &[], ..request }).await?;
            let excepted = |to: &Address| request.except.contains(to);
            let (out, messages): (Vec<DueMessage>, _) =
                batch.messages.into_iter().partition(|due| excepted(&due.message.destination));
            batch.messages = messages;
            let ids: Vec<_> = out.into_iter().map(|due| due.message.id).collect();
            batch.claim.release(&ids).await?;
            batch
        } else {
            self.store.fetch_due(request).await?
        };
        let held = batch.messages.iter().map(|due| due.message.id.clone()).collect();
        let expires = batch.claim.expires();
        let claim = Arc::new(Mutex::new(Some(batch.claim)));
        self.claims.lock().await.push(Arc::clone(&claim));
        let (store, claims) = (Arc::clone(&self.store), Arc::clone(&self.claims));
        batch.claim = Box::new(FaultyClaim { store, claims, claim, expires, held, fault: self.fault });
        Ok(batch)
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        let except = if self.fault == Fault::NextDueIgnoresExceptions { &[] } else { except };
        let mut next = self.store.next_due(except).await?;
        if self.fault == Fault::SettlesAPartAtOnce {
            // A lease that plays a transaction has no end.
            let all = ListQuery::new(Filter::default(), 100.try_into().expect("it is not zero"));
            let mut lines = self.store.list(&all).await?.messages.into_iter();
            let is_free = |line: &ScheduledSummary| {
                line.state == MessageState::Pending && !except.contains(&line.destination)
            };
            next.due = lines.find(is_free).map(|line| line.next_attempt);
        }
        Ok(next)
    }

    async fn changed(&self) {
        self.store.changed().await;
    }
}

#[async_trait]
impl ScheduledMessages for FaultyStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.store.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        let mut listing = self.store.list(query).await?;
        let last = listing.messages.last().map(|line| line.next_attempt);
        let before = std::mem::replace(&mut *self.last_shown.lock().expect("nobody panics"), last);
        if self.fault == Fault::PagesSkipTies && query.after.is_some() {
            listing.messages.retain(|line| Some(line.next_attempt) != before);
        }
        Ok(listing)
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        if self.fault != Fault::CancelTellsWhatWasSeen {
            return self.store.cancel(ids).await;
        }
        let mut answers = Vec::new();
        for id in ids {
            answers.push(match self.store.get(id).await?.map(|seen| seen.state) {
                Some(MessageState::Pending) => Cancellation::Cancelled,
                Some(_) => Cancellation::InFlight,
                None => Cancellation::NotFound,
            });
            tokio::task::yield_now().await;
            self.store.cancel(std::slice::from_ref(id)).await?;
        }
        Ok(answers)
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        if self.fault == Fault::RescheduleForgets
            && let Some(seen) = self.store.get(id).await?
            && seen.message.failures > 0
            && self.store.cancel(std::slice::from_ref(id)).await? == [Cancellation::Cancelled]
        {
            let message = DelayedMessage { message: seen.message.message, due };
            return Ok(Rescheduling::Rescheduled(self.store.store(&[message]).await?[0]));
        }
        self.store.reschedule(id, due).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.store.stats().await
    }
}

impl FaultyClaim {
    fn settle(&mut self, ids: &[MessageId]) {
        self.held.retain(|id| !ids.contains(id));
    }
}

#[async_trait]
impl Claim for FaultyClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        let mut answers = match &mut *self.claim.lock().await {
            Some(claim) => claim.remove(ids).await?,
            None => vec![false; ids.len()],
        };
        if self.fault == Fault::RemovesAfterItsLease {
            for (id, answer) in ids.iter().zip(&mut answers).filter(|(id, _)| self.held.contains(*id)) {
                *answer |= self.store.cancel(std::slice::from_ref(id)).await? == [Cancellation::Cancelled];
            }
        }
        self.settle(ids);
        if self.fault == Fault::AnswersBackwards {
            answers.reverse();
        }
        Ok(answers)
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let ids: Vec<_> = failures.iter().map(|failure| failure.id.clone()).collect();
        self.settle(&ids);
        match &mut *self.claim.lock().await {
            Some(claim) => claim.increment_failure_count(failures).await,
            None => Ok(vec![false; failures.len()]),
        }
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        self.settle(ids);
        let all = self.claims.lock().await.clone();
        let others = all.iter().filter(|_| self.fault == Fault::ReleasesOthers);
        for claim in others.chain([&self.claim]) {
            if let Some(claim) = &mut *claim.lock().await {
                claim.release(ids).await?;
            }
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        if let Some(claim) = &mut *self.claim.lock().await {
            claim.renew().await?;
            self.expires = claim.expires();
        }
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        None
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        let taken = self.claim.lock().await.take();
        let Some(mut claim) = taken else { return Ok(()) };
        if self.fault == Fault::CommitCounts {
            let (retry_after, error) = (Duration::ZERO, "planted".to_owned());
            let held = std::mem::take(&mut self.held).into_iter();
            let failures = held.map(|id| Failure { id, retry_after, error: error.clone() });
            claim.increment_failure_count(&failures.collect::<Vec<_>>()).await?;
        }
        claim.commit().await
    }
}

impl Drop for FaultyClaim {
    fn drop(&mut self) {
        // Nobody else holds it for longer than a call, but for the list of all.
        if let Ok(mut claim) = self.claim.try_lock() {
            *claim = None;
        }
    }
}
