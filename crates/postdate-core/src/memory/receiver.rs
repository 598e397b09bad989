//! Receiving from queues.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    place::{self, Hold, Place},
    queues::{Queue, find},
    watch::Watcher,
};
use crate::{
    Address, Operation, OutgoingMessage, QueuedMessage, ReceiveClaim, ReceivedBatch, Receiver, Selection,
    StoreError, StoreErrorKind, engine,
};

#[derive(Debug)]
pub(super) struct MemoryReceiver {
    place: Arc<Place>,
    queue: Address,
    watcher: Arc<Watcher>,
}

#[derive(Debug)]
struct MemoryReceiveClaim {
    place: Arc<Place>,
    queue: Address,
    claim: u64,
    held: BTreeSet<u64>,
    received: Timestamp,
    expires: Option<Instant>,
}

impl MemoryReceiver {
    pub(super) fn new(place: Arc<Place>, queue: Address, watcher: Arc<Watcher>) -> Self {
        Self { place, queue, watcher }
    }
}

#[async_trait]
impl Receiver for MemoryReceiver {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        let taken = engine::now();
        let mut contents = self.place.lock();
        let claim = contents.next_claim();
        let queue = find(&mut contents, &self.queue, Operation::Receive)?;
        let now = self.place.now();
        let hold = Hold { claim, until: self.place.lease_end(now) };
        let mut free = queue.messages.iter_mut().filter(|(_, queued)| !queued.is_held(now));
        let chosen: Vec<_> = match selection {
            Selection::Next(limit) => {
                let chosen = free.by_ref().take(limit.get()).collect();
                match free.next() {
                    // Somebody who shares this receiver may have looked before that came.
                    Some(_) => self.watcher.give_reason(),
                    None => self.watcher.forget_reasons(),
                }
                chosen
            }
            Selection::Ids(ids) => free.filter(|(_, queued)| ids.contains(&queued.message.id)).collect(),
        };
        let messages: Vec<QueuedMessage> = chosen
            .into_iter()
            .map(|(position, queued)| {
                let received = queued.at(*position);
                queued.hold = Some(hold);
                queued.deliveries = queued.deliveries.saturating_add(1);
                received
            })
            .collect();
        // Nobody announces the end of a lease: changed() has to wake for it by the clock.
        let holds = queue.messages.values().filter_map(|queued| queued.hold);
        self.watcher.will_look_again(holds.map(|hold| hold.until).filter(|until| *until > now).min());
        let held = messages.iter().map(|message| message.position).collect();
        let (place, queue) = (Arc::clone(&self.place), self.queue.clone());
        let (received, expires) = (now, taken.checked_add(place.lease()));
        let claim = MemoryReceiveClaim { place, queue, claim, held, received, expires };
        Ok(ReceivedBatch { messages, claim: Box::new(claim) })
    }

    async fn changed(&self) {
        let Some(lease_end) = self.watcher.looks_again() else { return self.watcher.changed().await };
        let wait = Duration::try_from(lease_end.duration_since(self.place.now())).unwrap_or(Duration::ZERO);
        // Either way there may be something to take.
        let _ = tokio::time::timeout(wait, self.watcher.changed()).await;
    }
}

impl MemoryReceiveClaim {
    /// Does something with each message that this claim still holds; says which those are.
    fn settle(
        &mut self,
        queue: &mut Queue,
        positions: &[u64],
        mut settle: impl FnMut(&mut Queue, u64),
    ) -> Vec<bool> {
        let now = self.place.now();
        let mut settle_held = |position: &u64| {
            let is_held = queue.is_held_by(self.claim, *position, now);
            if is_held {
                settle(queue, *position);
                self.held.remove(position);
            }
            is_held
        };
        positions.iter().map(&mut settle_held).collect()
    }
}

#[async_trait]
impl ReceiveClaim for MemoryReceiveClaim {
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let place = Arc::clone(&self.place);
        let mut contents = place.lock();
        let queue = find(&mut contents, &self.queue, Operation::Settle)?;
        Ok(self.settle(queue, positions, |queue, position| {
            queue.messages.remove(&position);
        }))
    }

    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let (place, claim) = (Arc::clone(&self.place), self.claim);
        let mut contents = place.lock();
        let queue = find(&mut contents, &self.queue, Operation::Settle)?;
        Ok(self.settle(queue, positions, |queue, position| queue.give_back(claim, position, place.now())))
    }

    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError> {
        let place = Arc::clone(&self.place);
        let mut contents = place.lock();
        find(&mut contents, queue, Operation::Settle)?;
        let from = find(&mut contents, &self.queue, Operation::Settle)?;
        let mut moved = Vec::new();
        let answers =
            self.settle(from, positions, |from, position| moved.extend(from.messages.remove(&position)));
        for queued in moved {
            contents.enqueue(OutgoingMessage { destination: queue.clone(), ..queued.message }, place.now());
        }
        Ok(answers)
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let mut contents = self.place.lock();
        let now = self.place.now();
        let queue = find(&mut contents, &self.queue, Operation::Renew)?;
        if !self.held.iter().all(|position| queue.is_held_by(self.claim, *position, now)) {
            let detail = format!("the lease of {:?} is over; receive again", self.place.lease());
            return Err(place::error(StoreErrorKind::ClaimLost, Operation::Renew, detail));
        }
        let hold = Hold { claim: self.claim, until: self.place.lease_end(now) };
        for (_, queued) in queue.messages.iter_mut().filter(|(position, _)| self.held.contains(position)) {
            queued.hold = Some(hold);
        }
        self.expires = engine::now().checked_add(self.place.lease());
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn received(&self) -> Option<Timestamp> {
        Some(self.received)
    }
}

impl Drop for MemoryReceiveClaim {
    fn drop(&mut self) {
        let now = self.place.now();
        let mut contents = self.place.lock();
        if let Some(queue) = contents.queues.get_mut(&self.queue) {
            for position in &self.held {
                queue.give_back(self.claim, *position, now);
            }
        }
    }
}
