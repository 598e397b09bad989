//! A claim at the other end of a wire.

use std::{
    slice,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use postdate_core::{
    Cancellation, Claim, DueMessage, Enlistment, Failure, MessageId, Operation, StoreError, StoreErrorKind,
};
use postdate_history::What;

use crate::{
    faults::{Injected, Planted},
    store::SharedClaim,
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
}

impl SimClaim {
    /// `began` is when the call that took it began.
    pub(crate) fn new(wire: Wire, inner: Box<dyn Claim>, messages: &[DueMessage], began: Instant) -> Self {
        let number = wire.world.next_claim();
        let inner = SharedClaim::new(inner);
        let expires = began.checked_add(wire.world.plan.lease);
        if wire.world.has(Planted::NoFence) {
            let holders = messages.iter().map(|due| (due.message.id.clone(), inner.clone()));
            wire.world.state().holders.extend(holders);
        }
        Self { wire, inner, number, expires }
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

    fn remove_now(&self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        if self.wire.world.has(Planted::RemoveThenSend) {
            return Ok(vec![true; ids.len()]);
        }
        let mut held = self.act(Operation::Remove, |claim| at_once(claim.remove(ids)))?;
        if self.wire.world.has(Planted::NoFence) {
            let remove = |claim: &mut dyn Claim, id: &MessageId| at_once(claim.remove(slice::from_ref(id)));
            self.without_fence(ids, &mut held, remove);
        }
        self.tell(What::removed(self.number, ids, &held));
        self.count_stale(&held);
        Ok(held)
    }

    fn count_failures_now(&self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let mut counted = failures.to_vec();
        if self.wire.world.has(Planted::PoisonWithoutBackOff) {
            counted.iter_mut().for_each(|failure| failure.retry_after = Duration::ZERO);
        }
        let count = |claim: &mut dyn Claim| at_once(claim.increment_failure_count(&counted));
        let held = self.act(Operation::IncrementFailureCount, count)?;
        self.tell(What::failed(self.number, failures, &held));
        self.count_stale(&held);
        Ok(held)
    }

    fn release_now(&self, ids: &[MessageId]) -> Result<(), StoreError> {
        self.act(Operation::Release, |claim| at_once(claim.release(ids)))?;
        self.tell(What::released(self.number, ids));
        Ok(())
    }

    fn renew_now(&self) -> Result<(), StoreError> {
        let renewed = self.act(Operation::Renew, |claim| at_once(claim.renew()));
        match &renewed {
            Ok(()) => {
                self.tell(What::Renewed { claim: self.number, until: self.wire.world.lease_end() });
            }
            Err(_) => self.wire.world.count(Injected::StaleAnswer),
        }
        renewed
    }

    fn commit_now(&self) -> Result<(), StoreError> {
        if let Some(claim) = self.inner.take() {
            at_once(claim.commit())?;
        }
        self.tell(What::Committed { claim: self.number });
        Ok(())
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
        self.wire.call(OPERATION, || self.remove_now(ids)).await?.or_lost(OPERATION)
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        const OPERATION: Operation = Operation::IncrementFailureCount;
        self.wire.call(OPERATION, || self.count_failures_now(failures)).await?.or_lost(OPERATION)
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        const OPERATION: Operation = Operation::Release;
        self.wire.call(OPERATION, || self.release_now(ids)).await?.or_lost(OPERATION)
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        const OPERATION: Operation = Operation::Renew;
        let began = tokio::time::Instant::now().into_std();
        self.wire.call(OPERATION, || self.renew_now()).await?.or_lost(OPERATION)?;
        self.expires = began.checked_add(self.wire.world.plan.lease);
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        None
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        const OPERATION: Operation = Operation::Commit;
        self.wire.call(OPERATION, || self.commit_now()).await?.or_lost(OPERATION)
    }
}

impl Drop for SimClaim {
    fn drop(&mut self) {
        if self.wire.life.is_killed() || self.wire.is_cut() {
            return self.bury();
        }
        let Some(claim) = self.inner.take() else { return };
        drop(claim);
        self.tell(What::Dropped { claim: self.number });
    }
}
