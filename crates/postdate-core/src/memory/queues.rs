//! Queues and sending to them.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    claim::MemoryTransaction,
    place::{self, Contents, Hold, Place},
    receiver::MemoryReceiver,
    watch::Watchers,
};
use crate::{
    Address, DispatchError, DispatchErrorKind, Dispatcher, Enlistment, Operation, OutgoingMessage,
    QueueStatus, QueuedMessage, Queues, Receiver, StoreError, StoreErrorKind,
};

/// The queues of a [`Memory`](crate::Memory). Clones share their content.
#[derive(Clone, Debug)]
pub struct MemoryQueues {
    place: Arc<Place>,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) messages: BTreeMap<u64, Queued>,
    pub(super) watchers: Watchers,
}

pub(super) struct Queued {
    pub(super) message: OutgoingMessage,
    pub(super) hold: Option<Hold>,
    pub(super) deliveries: u32,
    enqueued: Timestamp,
}

impl MemoryQueues {
    pub(super) fn new(place: Arc<Place>) -> Self {
        Self { place }
    }

    fn own<'a>(&self, transaction: &'a mut Enlistment<'_>) -> Option<&'a mut MemoryTransaction> {
        transaction.transaction::<MemoryTransaction>().filter(|own| Arc::ptr_eq(&own.place, &self.place))
    }
}

#[async_trait]
impl Queues for MemoryQueues {
    async fn create(&self, queue: &Address) -> Result<bool, StoreError> {
        let mut contents = self.place.lock();
        let is_new = !contents.queues.contains_key(queue);
        contents.queues.entry(queue.clone()).or_default();
        Ok(is_new)
    }

    async fn list(&self) -> Result<Vec<QueueStatus>, StoreError> {
        let contents = self.place.lock();
        let status = |(name, queue): (&Address, &Queue)| QueueStatus {
            name: name.clone(),
            depth: queue.messages.len() as u64,
            oldest: queue.messages.values().map(|queued| queued.enqueued).next(),
        };
        Ok(contents.queues.iter().map(status).collect())
    }

    async fn purge(&self, queue: &Address) -> Result<u64, StoreError> {
        let now = self.place.now();
        let mut contents = self.place.lock();
        let messages = &mut find(&mut contents, queue, Operation::Administer)?.messages;
        let before = messages.len();
        messages.retain(|_, queued| queued.is_held(now));
        Ok((before - messages.len()) as u64)
    }

    async fn browse(
        &self,
        queue: &Address,
        after: u64,
        limit: NonZeroUsize,
    ) -> Result<Vec<QueuedMessage>, StoreError> {
        let mut contents = self.place.lock();
        let queue = find(&mut contents, queue, Operation::Administer)?;
        let rest = queue.messages.range(after.saturating_add(1)..).take(limit.get());
        Ok(rest.map(|(position, queued)| queued.at(*position)).collect())
    }

    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(self.clone())
    }

    fn max_message_bytes(&self) -> usize {
        place::MAX_QUEUED_BYTES
    }

    async fn receiver(&self, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError> {
        let mut contents = self.place.lock();
        let watcher = find(&mut contents, queue, Operation::Receive)?.watchers.join();
        Ok(Arc::new(MemoryReceiver::new(Arc::clone(&self.place), queue.clone(), watcher)))
    }
}

#[async_trait]
impl Dispatcher for MemoryQueues {
    async fn joins(&self, mut transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(self.own(&mut transaction).is_some())
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        mut within: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        let mut transaction = match within.as_mut().map(|within| self.own(within)) {
            None => None,
            Some(Some(transaction)) => Some(transaction),
            Some(None) => return messages.iter().map(|_| Err(foreign_transaction())).collect(),
        };
        let now = self.place.now();
        let mut contents = self.place.lock();
        let send = |message: &OutgoingMessage| {
            if message.size() > place::MAX_QUEUED_BYTES {
                return Err(too_large(message));
            }
            if !contents.queues.contains_key(&message.destination) {
                return Err(no_destination(message));
            }
            match &mut transaction {
                Some(transaction) => transaction.sends.push(message.clone()),
                None => contents.enqueue(message.clone(), now),
            }
            Ok(())
        };
        messages.iter().map(send).collect()
    }
}

impl Queue {
    pub(super) fn push(&mut self, position: u64, message: OutgoingMessage, now: Timestamp) {
        self.messages.insert(position, Queued { message, hold: None, deliveries: 0, enqueued: now });
        self.watchers.announce(now);
    }

    /// Whether the claim holds the message and its lease is not over.
    pub(super) fn is_held_by(&self, claim: u64, position: u64, now: Timestamp) -> bool {
        let hold = self.messages.get(&position).and_then(|queued| queued.hold);
        hold.is_some_and(|hold| hold.claim == claim && hold.is_valid(now))
    }

    /// Ends the claim's hold on the message, if there is one.
    pub(super) fn give_back(&mut self, claim: u64, position: u64, now: Timestamp) {
        let Some(queued) = self.messages.get_mut(&position) else { return };
        if queued.hold.is_some_and(|hold| hold.claim == claim) {
            queued.hold = None;
            self.watchers.announce(now);
        }
    }
}

impl Queued {
    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        self.hold.is_some_and(|hold| hold.is_valid(now))
    }

    pub(super) fn at(&self, position: u64) -> QueuedMessage {
        QueuedMessage {
            message: self.message.clone(),
            position,
            enqueued: self.enqueued,
            deliveries: self.deliveries,
        }
    }
}

pub(super) fn find<'a>(
    contents: &'a mut Contents,
    queue: &Address,
    operation: Operation,
) -> Result<&'a mut Queue, StoreError> {
    contents.queues.get_mut(queue).ok_or_else(|| {
        let detail = format!("there is no queue {queue:?}; create it first");
        place::error(StoreErrorKind::NoSuchQueue, operation, detail)
    })
}

fn no_destination(message: &OutgoingMessage) -> DispatchError {
    let detail = format!("there is no queue {:?}; create it first", message.destination);
    DispatchError::new(DispatchErrorKind::NoDestination, detail)
}

fn too_large(message: &OutgoingMessage) -> DispatchError {
    let (size, limit) = (message.size(), place::MAX_QUEUED_BYTES);
    let detail = format!("the message has {size} bytes, the limit of a queue is {limit}");
    DispatchError::new(DispatchErrorKind::Rejected, detail)
}

fn foreign_transaction() -> DispatchError {
    let detail = "the transaction is not of this place; ask joins() before sending within one";
    DispatchError::new(DispatchErrorKind::Unavailable, detail)
}
