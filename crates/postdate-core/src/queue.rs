//! The seam to queues: creating them, looking into them, receiving from them.

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Instant};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{Address, Dispatcher, MessageId, OutgoingMessage, StoreError};

/// A set of queues: in a file, in a database, on a machine.
#[async_trait]
pub trait Queues: fmt::Debug + Send + Sync + 'static {
    /// Creates a queue. `false` if it was there already.
    ///
    /// Contract:
    /// - of several who create it at once, one is told `true`
    /// - two names are the same queue only if they are the same to the letter
    async fn create(&self, queue: &Address) -> Result<bool, StoreError>;

    /// All queues, in the order of their names, with their depths.
    async fn list(&self) -> Result<Vec<QueueStatus>, StoreError>;

    /// Removes all messages that no receiver holds and answers how many.
    ///
    /// Contract:
    /// - what is sent meanwhile is counted if it was removed, and stays otherwise
    /// - dropping the future may leave a part
    ///
    /// # Errors
    /// [`NoSuchQueue`](crate::StoreErrorKind::NoSuchQueue) among others.
    async fn purge(&self, queue: &Address) -> Result<u64, StoreError>;

    /// Looks at up to `limit` messages in order without taking them, beginning after a position (0 for the
    /// first).
    ///
    /// Contract:
    /// - those that receivers hold are shown, too; no delivery is counted
    /// - there need not be a message at the position, nor after it
    /// - fewer than `limit` means that the queue ends there
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

    /// The greatest message that these queues take: headers and body together, in bytes. Greater ones are
    /// [`Rejected`](crate::DispatchErrorKind::Rejected). Not less than what the stores of the same place take.
    fn max_message_bytes(&self) -> usize {
        usize::MAX
    }

    /// Receives from one of them. The receiver and its claims outlive this handle.
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
    /// - in order of arrival; a message that was given back stands where it stood, whoever held it
    /// - no message is held by two valid claims
    /// - fewer than were asked for may come, but none only if there are none
    /// - an id that is named twice selects once; of several messages with one id it selects all
    /// - dropping the future takes nothing
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError>;

    /// Completes when there may be something to take that was not there at the last
    /// [`try_receive`](Self::try_receive), or that it left because it took as many as it was allowed to.
    ///
    /// Contract:
    /// - a message that arrives, is given back or moved here, and a lease that ends are reasons, also between
    ///   two calls; there may be no reason
    /// - every receiver has the reason; of those who share one, all who wait
    /// - dropping the future loses no reason
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
/// Contract:
/// - every method answers for each position, in order: `false` where the claim did not hold it, or no longer; so
///   for a position that is named twice `true` once
/// - what was answered is no longer the claim's, and what was not is as it was
/// - dropping the future of a call settles all that it names or nothing, and does not touch the rest
/// - a claim whose process crashed is as good as dropped, at the latest when its lease is over
#[async_trait]
pub trait ReceiveClaim: fmt::Debug + Send {
    /// Removes messages that were handled. They do not come back, after a crash neither.
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError>;

    /// Gives messages back, to be received again at once.
    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError>;

    /// Moves messages to another queue or to the end of their own, in one transaction.
    ///
    /// Contract:
    /// - id, headers and body are the same, byte for byte
    /// - it is as if they had just been sent there: last, at new positions, never received
    ///
    /// # Errors
    /// [`NoSuchQueue`](crate::StoreErrorKind::NoSuchQueue) among others; then nothing was moved.
    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError>;

    /// Holds on for another term to what was not settled.
    ///
    /// # Errors
    /// [`ClaimLost`](crate::StoreErrorKind::ClaimLost) if something of that was lost; then nothing was renewed.
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
