//! The queue of the pump: the queue in memory at the other end of a wire, and the clients that hand messages over.

use std::{num::NonZeroUsize, sync::Arc, time::Instant};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use postdate_core::{
    Address, EndpointName, Operation, OutgoingMessage, QueuedMessage, Queues as _, ReceiveClaim,
    ReceivedBatch, Receiver, Selection, StoreError, StoreErrorKind,
};
use postdate_history::What;

use crate::{
    faults::{Injected, Planted},
    life::{Life, Spot},
    wire::{Answer, To, Wire, unreachable},
    world::{ENDPOINT, World, at_once},
};

/// The queue as one process reaches it.
#[derive(Debug)]
pub(crate) struct SimReceiver {
    wire: Wire,
    inner: Arc<dyn Receiver>,
}

/// The lock on what one process received. When the process crashes nobody gives it back.
#[derive(Debug)]
struct SimLock {
    wire: Wire,
    inner: Option<Box<dyn ReceiveClaim>>,
    number: u64,
    expires: Option<Instant>,
}

pub(crate) fn timeouts() -> Address {
    EndpointName::new(ENDPOINT).expect("a valid name").timeouts_queue()
}

/// Puts a message into the queue. `None` if the client does not get to know whether that worked.
pub(crate) fn hand_over(world: &World, message: &OutgoingMessage) -> Option<()> {
    if world.plan.queue_outages.cover(world.elapsed()) {
        world.count(Injected::QueueOutage);
        return None;
    }
    let queues = world.memory.queues();
    let sent = at_once(queues.dispatcher().dispatch(std::slice::from_ref(message), None));
    sent.into_iter().for_each(|sent| sent.expect("the queue is there"));
    let last = world.state().last_position;
    let new = at_once(queues.browse(&timeouts(), last, NonZeroUsize::MAX)).expect("the queue is there");
    for QueuedMessage { message, position, .. } in new {
        world.state().last_position = position;
        world.record(What::HandedOver { id: message.id.to_string(), position });
    }
    (!world.strikes(world.plan.failing_calls, Injected::HandOverUnanswered)).then_some(())
}

impl SimReceiver {
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>) -> Self {
        let inner = at_once(world.memory.queues().receiver(&timeouts())).expect("the queue is there");
        Self { wire: Wire { world, life, to: To::Queue }, inner }
    }

    fn receive_now(
        &self,
        selection: &Selection,
        began: Instant,
    ) -> Result<(Vec<QueuedMessage>, SimLock), StoreError> {
        let Wire { world, life, .. } = &self.wire;
        let ReceivedBatch { messages, mut claim } = at_once(self.inner.try_receive(selection))?;
        if messages.iter().any(|queued| queued.deliveries > 0) {
            world.count(Injected::ReceivedAgain);
        }
        let number = world.next_claim();
        world.record_of(life, What::received(number, Some(world.lease_end()), &messages));
        if world.has(Planted::CompleteBeforeStore) {
            let positions: Vec<u64> = messages.iter().map(|queued| queued.position).collect();
            let held = at_once(claim.complete(&positions))?;
            world.record_of(life, What::completed(number, &positions, &held));
        }
        let expires = began.checked_add(world.plan.lease);
        let lock = SimLock { wire: self.wire.clone(), inner: Some(claim), number, expires };
        Ok((messages, lock))
    }
}

#[async_trait]
impl Receiver for SimReceiver {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        let began = tokio::time::Instant::now().into_std();
        match self.wire.call(Operation::Receive, || self.receive_now(selection, began)).await? {
            Answer::Came((messages, lock)) => Ok(ReceivedBatch { messages, claim: Box::new(lock) }),
            Answer::Lost((_, mut lock)) => {
                // Nobody got to know of it, so nobody gives back what it holds.
                lock.bury();
                Err(unreachable(Operation::Receive))
            }
        }
    }

    async fn changed(&self) {
        let Wire { world, life, .. } = &self.wire;
        loop {
            self.inner.changed().await;
            if !world.strikes(world.plan.lost_wakes, Injected::LostWakeUp) {
                break;
            }
        }
        life.passes(Spot::Woken).await;
    }
}

impl SimLock {
    fn bury(&mut self) {
        let Some(claim) = self.inner.take() else { return };
        self.tell(What::LockBuried { claim: self.number });
        self.wire.world.state().buried_locks.push(claim);
    }

    fn tell(&self, what: What) {
        self.wire.world.record_of(&self.wire.life, what);
    }

    fn act<T>(
        &mut self,
        act: impl FnOnce(&mut dyn ReceiveClaim) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        act(&mut **self.inner.as_mut().expect("it is taken when it is dropped"))
    }

    fn complete_now(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        if self.wire.world.has(Planted::CompleteBeforeStore) {
            return Ok(vec![true; positions.len()]);
        }
        let held = self.act(|claim| at_once(claim.complete(positions)))?;
        if held.contains(&false) {
            self.wire.world.count(Injected::StaleAnswer);
        }
        self.tell(What::completed(self.number, positions, &held));
        Ok(held)
    }

    fn abandon_now(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        self.tell(What::GivenBack { claim: self.number, positions: positions.to_vec() });
        self.act(|claim| at_once(claim.abandon(positions)))
    }

    fn renew_now(&mut self) -> Result<(), StoreError> {
        let renewed = self.act(|claim| at_once(claim.renew()));
        match &renewed {
            Ok(()) => {
                let until = self.wire.world.lease_end();
                self.tell(What::LockRenewed { claim: self.number, until });
            }
            Err(_) => self.wire.world.count(Injected::StaleAnswer),
        }
        renewed
    }
}

#[async_trait]
impl ReceiveClaim for SimLock {
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let wire = self.wire.clone();
        wire.call(Operation::Settle, || self.complete_now(positions)).await?.or_lost(Operation::Settle)
    }

    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let wire = self.wire.clone();
        wire.call(Operation::Release, || self.abandon_now(positions)).await?.or_lost(Operation::Release)
    }

    async fn move_to(&mut self, _: &[u64], _: &Address) -> Result<Vec<bool>, StoreError> {
        let detail = "pumps do not move";
        Err(StoreError::new(StoreErrorKind::Unsupported, Operation::Settle, "simulation", detail))
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let (wire, began) = (self.wire.clone(), tokio::time::Instant::now().into_std());
        wire.call(Operation::Renew, || self.renew_now()).await?.or_lost(Operation::Renew)?;
        self.expires = began.checked_add(self.wire.world.plan.lease);
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires.filter(|_| !self.wire.world.has(Planted::LocksNotRenewed))
    }

    fn received(&self) -> Option<Timestamp> {
        let received = self.inner.as_ref()?.received()?;
        let Wire { world, life, .. } = &self.wire;
        let skewed = world.has(Planted::DelayByTheClockOfTheProcess);
        let skew = if skewed { world.skew(life.node) } else { 0 };
        Some(received + SignedDuration::from_secs(skew))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        if self.wire.life.is_killed() || self.wire.is_cut() {
            return self.bury();
        }
        if let Some(claim) = self.inner.take() {
            self.tell(What::LockDropped { claim: self.number });
            drop(claim);
        }
    }
}
