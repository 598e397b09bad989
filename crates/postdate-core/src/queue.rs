//! The seam to queues: creating them, looking into them, receiving from them.

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Instant};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{Address, Dispatcher, MessageId, OutgoingMessage, StoreError};

/// A set of queues: in a file, in a database, on a machine.
#[async_trait]
pub trait Queues: fmt::Debug + Send + Sync + 'static {
    /// Creates a queue. `false` if it was there already.
    async fn create(&self, queue: &Address) -> Result<bool, StoreError>;

    /// All queues by name, with their depths.
    async fn list(&self) -> Result<Vec<QueueStatus>, StoreError>;

    /// Removes all messages that no receiver holds and answers how many.
    ///
    /// # Errors
    /// [`NoSuchQueue`](crate::StoreErrorKind::NoSuchQueue) among others.
    async fn purge(&self, queue: &Address) -> Result<u64, StoreError>;

    /// Looks at up to `limit` messages in order without taking them, beginning after a position (0 for the
    /// first).
    ///
    /// # Errors
    /// [`NoSuchQueue`](crate::StoreErrorKind::NoSuchQueue) among others.
    async fn browse(
        &self,
        queue: &Address,
        after: u64,
        limit: NonZeroUsize,
    ) -> Result<Vec<QueuedMessage>, StoreError>;

    /// Sends to these queues.
    fn dispatcher(&self) -> Arc<dyn Dispatcher>;

    /// Receives from one of them.
    ///
    /// # Errors
    /// [`NoSuchQueue`](crate::StoreErrorKind::NoSuchQueue) among others.
    async fn receiver(&self, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError>;
}

/// Receives from one queue. Several may receive from the same queue, in one process or in many.
#[async_trait]
pub trait Receiver: fmt::Debug + Send + Sync + 'static {
    /// Takes messages that nobody else holds; none, if there are none.
    ///
    /// Contract:
    /// - in order of arrival; a message that was given back is first again
    /// - no message is held by two valid claims
    /// - dropping the future takes nothing
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError>;

    /// Completes when there may be something to take that was not there at the last
    /// [`try_receive`](Self::try_receive). A change in between is not missed; there may be no reason.
    async fn changed(&self);
}

/// Which messages to receive.
#[derive(Clone, Debug)]
pub enum Selection {
    /// The next so many in order.
    Next(NonZeroUsize),
    /// Those with these ids, wherever they stand.
    Ids(Vec<MessageId>),
}

/// What was received.
#[derive(Debug)]
pub struct ReceivedBatch {
    /// The messages in order.
    pub messages: Vec<QueuedMessage>,
    /// The lock on them.
    pub claim: Box<dyn ReceiveClaim>,
}

/// The lock on received messages. Dropping it gives back what was not settled.
///
/// Every method takes positions and answers for each, in order, `false` where the claim no longer held it.
#[async_trait]
pub trait ReceiveClaim: fmt::Debug + Send {
    /// Removes messages that were handled.
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError>;

    /// Gives messages back, to be received again at once.
    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError>;

    /// Moves messages to another queue, in one transaction.
    ///
    /// # Errors
    /// [`NoSuchQueue`](crate::StoreErrorKind::NoSuchQueue) among others; then nothing was moved.
    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError>;

    /// Holds on for another term.
    async fn renew(&mut self) -> Result<(), StoreError>;

    /// When this claim ends unless it is renewed, by the monotonic clock of this process, counted from before
    /// the call that took it. `None` where claims do not expire.
    fn expires(&self) -> Option<Instant> {
        None
    }

    /// The queue's clock when it gave this claim: how long a message has waited is the difference to
    /// [`enqueued`](QueuedMessage::enqueued), whatever other clocks show. `None` where that is not known; then a
    /// relative delay counts from the moment of receiving.
    fn received(&self) -> Option<Timestamp> {
        None
    }
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The message; its destination is the queue.
    pub message: OutgoingMessage,
    /// Where it stands: greater than that of every message before it. Never used twice.
    pub position: u64,
    /// When it arrived.
    pub enqueued: Timestamp,
    /// How often it was received before.
    pub deliveries: u32,
}

/// A queue and how many messages it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its name.
    pub name: Address,
    /// How many messages are in it, those that receivers hold included.
    pub depth: u64,
    /// When the first of them arrived.
    pub oldest: Option<Timestamp>,
}

/// Conveniences for every receiver.
pub trait ReceiverExt: Receiver {
    /// Takes up to `limit` messages, waiting until there is one.
    ///
    /// # Errors
    /// As [`Receiver::try_receive`].
    fn receive(&self, limit: NonZeroUsize) -> impl Future<Output = Result<ReceivedBatch, StoreError>> + Send {
        async move {
            loop {
                let batch = self.try_receive(&Selection::Next(limit)).await?;
                if !batch.messages.is_empty() {
                    return Ok(batch);
                }
                self.changed().await;
            }
        }
    }
}

impl<R: Receiver + ?Sized> ReceiverExt for R {}
