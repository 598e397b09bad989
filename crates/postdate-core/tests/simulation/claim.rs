//! A claim at the other end of a wire.

use std::{
    collections::BTreeSet,
    slice,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use postdate_core::{
    Cancellation, Claim, DueMessage, Enlistment, Failure, MessageId, Operation, StoreError, StoreErrorKind,
    TransactionMode,
};
use postdate_history::What;

use crate::{
    faults::{Injected, Planted},
    store::SharedClaim,
    transaction::SimTransaction,
    wire::Wire,
    world::at_once,
};

/// The lock on what one process fetched. When the process crashes nobody gives it back.
#[derive(Debug)]
pub(crate) struct SimClaim {
    wire: Wire,
    inner: SharedClaim,
    number: u64,
    expires: Option<Instant>,
    /// What is done when it ends, if nothing is done before.
    transaction: Option<SimTransaction>,
    /// What it has not settled yet.
    open: BTreeSet<MessageId>,
}

impl SimClaim {
    /// `began` is when the call that took it began.
    pub(crate) fn new(wire: Wire, inner: Box<dyn Claim>, messages: &[DueMessage], began: Instant) -> Self {
        let number = wire.world.next_claim();
        let inner = SharedClaim::new(inner);
        let expires = ends(&wire, began);
        let is_shared = wire.world.plan.mode() == TransactionMode::TransactionScope;
        if is_shared {
            wire.world.count(Injected::SharedTransaction);
        }
        let transaction = (is_shared || wire.world.plan.claims_in_transactions).then(SimTransaction::default);
        let open = messages.iter().map(|due| due.message.id.clone()).collect();
        if wire.world.has(Planted::NoFence) {
            let holders = messages.iter().map(|due| (due.message.id.clone(), inner.clone()));
            wire.world.state().holders.extend(holders);
        }
        Self { wire, inner, number, expires, transaction, open }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Nobody got to know of this claim, so nobody gives back what it holds.
    pub(crate) fn abandon(mut self) {
        self.bury();
    }

    fn bury(&mut self) {
        let Some(claim) = self.inner.take() else { return };
        self.tell(What::Buried { claim: self.number });
        self.wire.world.state().graveyard.push(claim);
    }

    fn remove_now(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        if self.wire.world.has(Planted::RemoveThenSend) {
            return Ok(vec![true; ids.len()]);
        }
        let mut held = self.act(Operation::Remove, |claim| at_once(claim.remove(ids)))?;
        if self.wire.world.has(Planted::NoFence) {
            let remove = |claim: &mut dyn Claim, id: &MessageId| at_once(claim.remove(slice::from_ref(id)));
            self.without_fence(ids, &mut held, remove);
        }
        self.change(What::removed(self.number, ids, &held));
        self.settled(ids.iter().zip(&held).filter(|(_, held)| **held).map(|(id, _)| id));
        self.count_stale(&held);
        Ok(held)
    }

    fn count_failures_now(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let mut counted = failures.to_vec();
        if self.wire.world.has(Planted::PoisonWithoutBackOff) {
            counted.iter_mut().for_each(|failure| failure.retry_after = Duration::ZERO);
        }
        let not = self.wire.world.has(Planted::FailureNotCounted);
        let count = |claim: &mut dyn Claim| {
            if not {
                let ids: Vec<MessageId> = counted.iter().map(|failure| failure.id.clone()).collect();
                return at_once(claim.release(&ids)).map(|()| vec![true; ids.len()]);
            }
            at_once(claim.increment_failure_count(&counted))
        };
        let held = self.act(Operation::IncrementFailureCount, count)?;
        self.change(What::failed(self.number, self.wire.world.now(), failures, &held));
        self.settled(failures.iter().zip(&held).filter(|(_, held)| **held).map(|(failure, _)| &failure.id));
        self.count_stale(&held);
        Ok(held)
    }

    fn release_now(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        if self.wire.world.has(Planted::NothingGivenBack) {
            return Ok(());
        }
        self.act(Operation::Release, |claim| at_once(claim.release(ids)))?;
        let released = What::released(self.number, ids);
        if self.wire.world.plan.claims_in_transactions {
            self.change(released)
        } else {
            self.tell(released)
        }
        self.settled(ids.iter());
        Ok(())
    }

    fn renew_now(&self) -> Result<(), StoreError> {
        let renewed = self.act(Operation::Renew, |claim| at_once(claim.renew()));
        match &renewed {
            Err(_) if self.wire.world.has(Planted::UnnoticedLoss) => {
                self.tell(What::Renewed { claim: self.number, until: self.wire.world.lease_end() });
                return Ok(());
            }
            Ok(()) => {
                self.tell(What::Renewed { claim: self.number, until: self.wire.world.lease_end() });
            }
            Err(_) => self.wire.world.count(Injected::StaleAnswer),
        }
        renewed
    }

    fn commit_now(&mut self) -> Result<(), StoreError> {
        let Some(claim) = self.inner.take() else { return Ok(()) };
        if self.wire.world.has(Planted::NothingGivenBack) {
            self.wire.world.state().graveyard.push(claim);
            return Ok(());
        }
        if let Err(error) = at_once(claim.commit()) {
            self.roll_back();
            return Err(error);
        }
        self.wire.world.take_effect(self.transaction.take().unwrap_or_default());
        self.tell(What::Committed { claim: self.number });
        Ok(())
    }

    /// A transaction that shares nothing with a dispatcher ends when nothing is left to settle, unless it is lost.
    fn settled<'a>(&mut self, ids: impl Iterator<Item = &'a MessageId>) {
        ids.for_each(|id| _ = self.open.remove(id));
        if self.ends_by_itself() && self.open.is_empty() && self.is_alive() {
            self.takes_effect(Injected::SettledTogether);
        }
    }

    fn ends_by_itself(&self) -> bool {
        let plan = &self.wire.world.plan;
        plan.claims_in_transactions && plan.mode() != TransactionMode::TransactionScope
    }

    fn is_alive(&self) -> bool {
        self.act(Operation::Renew, |claim| at_once(claim.renew())).is_ok()
    }

    fn takes_effect(&mut self, how: Injected) {
        if let Some(transaction) = self.transaction.take().filter(|transaction| !transaction.is_empty()) {
            self.wire.world.count(how);
            self.wire.world.take_effect(transaction);
        }
    }

    fn act<T>(
        &self,
        operation: Operation,
        act: impl FnOnce(&mut dyn Claim) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let ended = || StoreError::new(StoreErrorKind::ClaimLost, operation, "simulation", "it has ended");
        self.inner.with(act).unwrap_or_else(|| Err(ended()))
    }

    /// Plants the fault of doing what this claim may not do any more, whoever holds the message now.
    fn without_fence(
        &self,
        ids: &[MessageId],
        held: &mut [bool],
        act: impl Fn(&mut dyn Claim, &MessageId) -> Result<Vec<bool>, StoreError>,
    ) {
        let world = &self.wire.world;
        for (id, held) in ids.iter().zip(held).filter(|(_, held)| !**held) {
            let holder = world.state().holders.get(id).cloned();
            let by_holder = holder.and_then(|holder| holder.with(|claim| act(claim, id)));
            *held = matches!(by_holder, Some(Ok(done)) if done.contains(&true))
                || at_once(world.open().cancel(slice::from_ref(id)))
                    .is_ok_and(|answers| answers == [Cancellation::Cancelled]);
        }
    }

    /// Does it at once or when this ends. In a shared transaction what is not held fails the whole.
    fn change(&mut self, what: What) {
        match &mut self.transaction {
            Some(transaction) => transaction.change(what),
            None => self.tell(what),
        }
    }

    fn roll_back(&mut self) {
        if self.transaction.take().is_some() {
            self.wire.world.count(Injected::RolledBack);
        }
        self.tell(What::Dropped { claim: self.number });
    }

    fn tell(&self, what: What) {
        self.wire.world.record_of(&self.wire.life, what);
    }

    fn count_stale(&self, held: &[bool]) {
        if held.contains(&false) {
            self.wire.world.count(Injected::StaleAnswer);
        }
    }
}

#[async_trait]
impl Claim for SimClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        const OPERATION: Operation = Operation::Remove;
        let wire = self.wire.clone();
        wire.call(OPERATION, || self.remove_now(ids)).await?.or_lost(OPERATION)
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        const OPERATION: Operation = Operation::IncrementFailureCount;
        let wire = self.wire.clone();
        wire.call(OPERATION, || self.count_failures_now(failures)).await?.or_lost(OPERATION)
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        const OPERATION: Operation = Operation::Release;
        let wire = self.wire.clone();
        wire.call(OPERATION, || self.release_now(ids)).await?.or_lost(OPERATION)
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        const OPERATION: Operation = Operation::Renew;
        let began = tokio::time::Instant::now().into_std();
        self.wire.call(OPERATION, || self.renew_now()).await?.or_lost(OPERATION)?;
        self.expires = ends(&self.wire, began);
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        let is_shared = self.wire.world.plan.mode() == TransactionMode::TransactionScope;
        self.transaction.as_mut().filter(|_| is_shared).map(|transaction| Enlistment::new(transaction))
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        const OPERATION: Operation = Operation::Commit;
        let wire = self.wire.clone();
        wire.call(OPERATION, || self.commit_now()).await?.or_lost(OPERATION)
    }
}

/// When a claim ends that a call took which began then.
fn ends(wire: &Wire, began: Instant) -> Option<Instant> {
    if wire.world.has(Planted::NoRenewal) { None } else { began.checked_add(wire.world.plan.lease) }
}

impl Drop for SimClaim {
    fn drop(&mut self) {
        if self.wire.life.is_killed() || self.wire.is_cut() {
            return self.bury();
        }
        let keeps = self.ends_by_itself() && self.is_alive();
        let Some(claim) = self.inner.take() else { return };
        if self.wire.world.has(Planted::DropForgets) {
            self.wire.world.state().graveyard.push(claim);
        } else {
            drop(claim);
        }
        if keeps {
            self.takes_effect(Injected::KeptWhenDropped);
        }
        self.roll_back();
    }
}
