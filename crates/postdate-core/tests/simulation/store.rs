//! A store that is far away: the store in memory at the other end of a wire.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use postdate_core::{
    Address, Backend, Cancellation, Capabilities, Claim, ClaimKind, DelayedMessage, DelayedMessageStore, Due,
    DueBatch, DueMessage, EndpointName, FetchDue, Filter, Headers, ListQuery, Listing, MessageId,
    MessageState, NextDue, Operation, Rescheduling, ScheduledMessage, ScheduledMessages, ScheduledSummary,
    Stats, StoreError, StoreErrorKind, TransactionMode,
};
use postdate_history::What;

use crate::{
    claim::SimClaim,
    faults::{Injected, Planted},
    life::{Life, Spot},
    plan::{Plan, Wakes},
    wire::{Answer, To, Wire, unreachable},
    world::{Nature, World, at_once},
};

/// The store as one process reaches it.
#[derive(Debug)]
pub(crate) struct SimBackend {
    wire: Wire,
}

#[derive(Debug)]
struct SimStore {
    wire: Wire,
    inner: Arc<dyn DelayedMessageStore>,
    /// The latest due time that was fetched; for a planted fault only.
    watermark: Mutex<Timestamp>,
}

/// A claim that others than its holder can reach: that is the planted fault of having no fence.
#[derive(Clone, Debug)]
pub(crate) struct SharedClaim(Arc<Mutex<Option<Box<dyn Claim>>>>);

/// What a fetch took out of the store.
struct Fetched {
    messages: Vec<DueMessage>,
    claim: SimClaim,
    now: Timestamp,
    contended: bool,
}

impl SimBackend {
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>) -> Self {
        Self { wire: Wire { world, life, to: To::Store } }
    }
}

#[async_trait]
impl Backend for SimBackend {
    fn capabilities(&self) -> Capabilities {
        let Plan { claims_in_transactions, lease, .. } = self.wire.world.plan;
        let claims = if claims_in_transactions { ClaimKind::Transaction } else { ClaimKind::Lease(lease) };
        Capabilities::new(&TransactionMode::ALL, claims)
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.wire.world.memory.set_up(endpoint).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let inner = self.wire.world.memory.open(endpoint, mode).await?;
        Ok(Arc::new(SimStore { wire: self.wire.clone(), inner, watermark: Mutex::new(Timestamp::MIN) }))
    }
}

impl SimStore {
    fn has(&self, planted: Planted) -> bool {
        self.wire.world.has(planted)
    }

    fn store_now(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        let breaks = |message: &DelayedMessage| {
            self.wire.world.nature(&message.message.id) == Some(Nature::BreaksStore)
        };
        if messages.iter().any(breaks) {
            self.wire.world.count(Injected::StorePanic);
            let Wire { world, life, to } = &self.wire;
            world.watch(|bounds, now| bounds.answered(life, *to, Operation::Store, false, now));
            std::panic::resume_unwind(Box::new("it breaks the store"));
        }
        if self.has(Planted::NotIdempotent) && self.knows(&messages[0].message.id) {
            let known = "it is known already";
            return Err(StoreError::new(StoreErrorKind::Conflict, Operation::Store, "simulation", known));
        }
        let stored = at_once(self.inner.store(messages));
        if let Err(refused) = &stored
            && refused.blames_message()
        {
            self.wire.world.count(Injected::StoreRefusal);
            if self.has(Planted::PoisonTakesItsBatch) {
                let ids = messages.iter().map(|message| message.message.id.clone());
                self.wire.world.state().tainted.extend(ids);
            }
        }
        let dues = stored?;
        for (DelayedMessage { message, .. }, due) in messages.iter().zip(&dues) {
            self.wire.world.record(What::Stored { id: message.id.to_string(), due: *due });
        }
        self.wake_own();
        Ok(dues)
    }

    fn knows(&self, id: &MessageId) -> bool {
        at_once(self.inner.get(id)).is_ok_and(|found| found.is_some())
    }

    fn fetch_now(&self, request: FetchDue<'_>, began: Instant) -> Result<Fetched, StoreError> {
        let Wire { world, life, .. } = &self.wire;
        let mut batch = at_once(self.inner.fetch_due(request))?;
        if self.has(Planted::Watermark) {
            self.pass_over_the_late(&mut batch)?;
        }
        if self.has(Planted::RemoveThenSend) {
            at_once(batch.claim.remove(&ids_of(&batch.messages)))?;
        }
        if self.has(Planted::HeadersLost) {
            batch.messages.iter_mut().for_each(|due| due.message.headers = Headers::new().encode());
        }
        let claim = SimClaim::new(self.wire.clone(), batch.claim, &batch.messages, began);
        world.record_of(life, What::fetched(claim.number(), Some(world.lease_end()), &batch.messages));
        if batch.messages.is_empty() {
            world.watch(|bounds, now| bounds.fetched_nothing(life, request.except, now));
        }
        if world.has(Planted::RemoveThenSend) {
            let ids = ids_of(&batch.messages);
            world.record_of(life, What::removed(claim.number(), &ids, &vec![true; ids.len()]));
        }
        Ok(Fetched { messages: batch.messages, claim, now: batch.now, contended: batch.contended })
    }

    fn pass_over_the_late(&self, batch: &mut DueBatch) -> Result<(), StoreError> {
        let mut watermark = self.watermark.lock().unwrap_or_else(PoisonError::into_inner);
        let late = batch.messages.extract_if(.., |message| message.due < *watermark);
        let late: Vec<DueMessage> = late.collect();
        at_once(batch.claim.release(&ids_of(&late)))?;
        *watermark = batch.messages.iter().map(|message| message.due).fold(*watermark, Timestamp::max);
        Ok(())
    }

    fn next_due_now(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        let mut next = at_once(self.inner.next_due(except))?;
        if self.has(Planted::NextDueCountsClaimed) {
            next.due = self.first_attempt(|message| !except.contains(&message.destination))?;
        }
        if self.has(Planted::Watermark) {
            let watermark = *self.watermark.lock().unwrap_or_else(PoisonError::into_inner);
            next.due = self.first_attempt(|message| {
                let free = message.state == MessageState::Pending && !except.contains(&message.destination);
                message.due >= watermark && free
            })?;
        }
        let Wire { world, life, .. } = &self.wire;
        if self.has(Planted::WaitByProcessClock) {
            next.now += SignedDuration::from_secs(world.skew(life.node));
        }
        world.watch(|bounds, now| bounds.asked(life, except, next, now));
        Ok(next)
    }

    /// The first attempt of those that are looked at, held or not; for planted faults only.
    fn first_attempt(
        &self,
        looked_at: impl Fn(&ScheduledSummary) -> bool,
    ) -> Result<Option<Timestamp>, StoreError> {
        let all = ListQuery::new(Filter::default(), NonZeroUsize::MAX);
        let all = at_once(self.inner.list(&all))?.messages;
        Ok(all.iter().find(|message| looked_at(message)).map(|message| message.next_attempt))
    }

    fn wake_own(&self) {
        let Wire { world, life, .. } = &self.wire;
        if world.plan.wakes == Wakes::Own && !world.strikes(world.plan.lost_wakes, Injected::LostWakeUp) {
            life.own_change.notify_one();
        }
    }

    /// Answers at once and stores a little later, if nothing comes between.
    fn store_behind_the_back(&self, messages: &[DelayedMessage]) -> Vec<Timestamp> {
        let now = self.wire.world.now();
        let dues = messages.iter().map(|message| message.due.resolve(now).unwrap_or(now)).collect();
        let (wire, inner, messages) = (self.wire.clone(), self.inner.clone(), messages.to_vec());
        let later = Self { wire, inner, watermark: Mutex::new(now) };
        tokio::spawn(async move { later.wire.call(Operation::Store, || later.store_now(&messages)).await });
        dues
    }
}

#[async_trait]
impl DelayedMessageStore for SimStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        if self.has(Planted::AckBeforeCommit) {
            return Ok(self.store_behind_the_back(messages));
        }
        let handed_over = messages.iter().any(|message| self.wire.world.is_handed_over(&message.message.id));
        if handed_over {
            let (life, cut) = (&self.wire.life, self.wire.is_cut());
            self.wire.world.watch(|bounds, now| bounds.pump_stores(life, cut, now));
            let refuses = cut && self.has(Planted::StoreOutageIsRefusal);
            if refuses || messages.iter().any(|message| self.wire.world.is_tainted(&message.message.id)) {
                let kind = StoreErrorKind::Invalid;
                return Err(StoreError::new(kind, Operation::Store, "simulation", "planted refusal"));
            }
        }
        self.wire.call(Operation::Store, || self.store_now(messages)).await?.or_lost(Operation::Store)
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        let began = tokio::time::Instant::now().into_std();
        let fetched = self.wire.call(Operation::FetchDue, || self.fetch_now(request, began)).await?;
        match fetched {
            Answer::Came(Fetched { messages, claim, now, contended }) => {
                Ok(DueBatch { messages, claim: Box::new(claim), now, contended })
            }
            Answer::Lost(Fetched { claim, .. }) => {
                claim.abandon();
                Err(unreachable(Operation::FetchDue))
            }
        }
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        self.wire.call(Operation::NextDue, || self.next_due_now(except)).await?.or_lost(Operation::NextDue)
    }

    async fn changed(&self) {
        let Wire { world, life, .. } = &self.wire;
        match world.plan.wakes {
            Wakes::All => loop {
                self.inner.changed().await;
                if !world.strikes(world.plan.lost_wakes, Injected::LostWakeUp) {
                    break;
                }
            },
            Wakes::Own => life.own_change.notified().await,
            Wakes::Nobody => std::future::pending().await,
        }
        life.passes(Spot::Woken).await;
    }
}

#[async_trait]
impl ScheduledMessages for SimStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.wire.call(Operation::Query, || at_once(self.inner.get(id))).await?.or_lost(Operation::Query)
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.wire.call(Operation::Query, || at_once(self.inner.list(query))).await?.or_lost(Operation::Query)
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        let cancel = || {
            let mut answers = at_once(self.inner.cancel(ids))?;
            if self.has(Planted::CancelHeld) {
                let held = answers.iter_mut().filter(|answer| **answer == Cancellation::InFlight);
                held.for_each(|answer| *answer = Cancellation::Cancelled);
            }
            for (id, answer) in ids.iter().zip(&answers) {
                self.wire.world.record(What::cancelled(id, *answer));
            }
            Ok(answers)
        };
        self.wire.call(Operation::Cancel, cancel).await?.or_lost(Operation::Cancel)
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        let reschedule = || {
            let answer = at_once(self.inner.reschedule(id, due))?;
            self.wire.world.record(What::rescheduled(id, answer));
            self.wake_own();
            Ok(answer)
        };
        self.wire.call(Operation::Reschedule, reschedule).await?.or_lost(Operation::Reschedule)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.wire.call(Operation::Query, || at_once(self.inner.stats())).await?.or_lost(Operation::Query)
    }
}

impl SharedClaim {
    pub(crate) fn new(claim: Box<dyn Claim>) -> Self {
        Self(Arc::new(Mutex::new(Some(claim))))
    }

    /// Does something with the claim, if it has not ended.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut dyn Claim) -> T) -> Option<T> {
        let mut claim = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        claim.as_mut().map(|claim| act(&mut **claim))
    }

    pub(crate) fn take(&self) -> Option<Box<dyn Claim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(crate) fn ids_of(messages: &[DueMessage]) -> Vec<MessageId> {
    messages.iter().map(|message| message.message.id.clone()).collect()
}
