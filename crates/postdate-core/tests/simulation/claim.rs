//! A claim at the other end of a wire.

use std::{
    mem, slice,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use postdate_core::{
    Cancellation, Claim, DueMessage, Enlistment, Failure, MessageId, Operation, StoreError, StoreErrorKind,
};

use crate::{
    faults::{Injected, Planted},
    store::{SharedClaim, ids_of},
    wire::Wire,
    world::at_once,
};

/// The lock on what one process fetched. When the process crashes nobody gives it back.
#[derive(Debug)]
pub(crate) struct SimClaim {
    wire: Wire,
    inner: SharedClaim,
    number: u64,
    ids: Vec<MessageId>,
    expires: Option<Instant>,
}

impl SimClaim {
    /// `began` is when the call that took it began.
    pub(crate) fn new(wire: Wire, inner: Box<dyn Claim>, messages: &[DueMessage], began: Instant) -> Self {
        let number = wire.world.judge(|oracle, _| oracle.next_claim());
        let (inner, ids) = (SharedClaim::new(inner), ids_of(messages));
        let expires = began.checked_add(wire.world.plan.lease);
        if wire.world.has(Planted::NoFence) {
            let holders = ids.iter().map(|id| (id.clone(), inner.clone()));
            wire.world.state().holders.extend(holders);
        }
        Self { wire, inner, number, ids, expires }
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
        let mut state = self.wire.world.state();
        state.oracle.buried(self.number);
        state.graveyard.push(claim);
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
        self.wire.world.judge(|oracle, now| oracle.removed(self.number, ids, &held, now));
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
        self.wire.world.judge(|oracle, now| oracle.counted(self.number, failures, &held, now));
        self.count_stale(&held);
        Ok(held)
    }

    fn release_now(&self, ids: &[MessageId]) -> Result<(), StoreError> {
        self.act(Operation::Release, |claim| at_once(claim.release(ids)))?;
        self.wire.world.judge(|oracle, now| oracle.released(self.number, ids, now));
        Ok(())
    }

    fn renew_now(&self) -> Result<(), StoreError> {
        let renewed = self.act(Operation::Renew, |claim| at_once(claim.renew()));
        match &renewed {
            Ok(()) => self.wire.world.judge(|oracle, now| oracle.renewed(self.number, now)),
            Err(_) => self.wire.world.count(Injected::StaleAnswer),
        }
        renewed
    }

    fn commit_now(&self) -> Result<(), StoreError> {
        if let Some(claim) = self.inner.take() {
            at_once(claim.commit())?;
        }
        self.wire.world.judge(|oracle, now| oracle.committed(self.number, &self.ids, now));
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
        let ids = mem::take(&mut self.ids);
        self.wire.world.judge(|oracle, now| oracle.dropped(self.number, &ids, now));
    }
}
