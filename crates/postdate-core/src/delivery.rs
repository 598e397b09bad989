//! Delayed delivery as an application uses it.

mod builder;
mod pump;
mod running;
mod start;

use std::{convert::Infallible, sync::Arc, time::Duration};

use jiff::Timestamp;

pub use builder::Builder;
pub use pump::Pump;
pub use start::StartError;

use crate::{
    Address, BreakerName, Cancellation, DelayedMessage, DelayedMessageStore, Due, Event, InvalidName,
    ListQuery, Listing, Message, MessageId, Rescheduling, ScheduledMessage, Stats, StoreError,
    TransactionMode, engine::Storing, observer::Reporter,
};
use running::Running;

/// How long stopping waits for others to be told of what was changed.
const FLUSH: Duration = Duration::from_secs(2);

/// Delayed delivery for one endpoint: takes messages that are due later and delivers them when they are.
///
/// Dropping it cuts delivery off: what was under way is given back and delivered at the next start, possibly
/// twice. [`stop`](Self::stop) ends it in order.
#[derive(Debug)]
pub struct DelayedDelivery {
    store: Arc<dyn DelayedMessageStore>,
    mode: TransactionMode,
    reporter: Reporter,
    storing: Arc<Storing>,
    poller: Running,
    pump: Option<Running>,
}

/// A message that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// Its id.
    pub id: MessageId,
    /// When it is due, as stored.
    pub due: Timestamp,
}

/// How delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// How many batches were still under way at the end of the drain time. Their messages were given back and
    /// may be delivered twice.
    pub cut_off: usize,
}

/// A message was not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Its destination has no valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Infallible> for SendError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl DelayedDelivery {
    /// Begins to set up delivery for the endpoint of this name.
    pub fn builder(endpoint: impl Into<String>) -> Builder {
        Builder::new(endpoint.into())
    }

    /// Stores a message to be delivered to `destination` when it is due. Once this returned `Ok`, it will be.
    ///
    /// # Errors
    /// When the name is not valid or the store does not take the message. After an error that
    /// [is transient](StoreError::is_transient) it may have been stored all the same: send it again with the
    /// same id to find out.
    pub async fn send<A>(&self, destination: A, message: Message, due: Due) -> Result<Sent, SendError>
    where
        A: TryInto<Address>,
        SendError: From<A::Error>,
    {
        let message = message.to(destination.try_into()?, due);
        let id = message.message.id.clone();
        let due = self.store(std::slice::from_ref(&message)).await?;
        Ok(Sent { id, due: due.first().copied().unwrap_or(Timestamp::MAX) })
    }

    /// Stores messages, all or none.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_batch(&self, messages: &[DelayedMessage]) -> Result<Vec<Sent>, SendError> {
        let dues = self.store(messages).await?;
        let sent =
            |(message, due): (&DelayedMessage, Timestamp)| Sent { id: message.message.id.clone(), due };
        Ok(messages.iter().zip(dues).map(sent).collect())
    }

    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        self.storing.store(messages).await.map_err(|unstored| unstored.error)
    }

    /// Takes a message back before it is sent.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn cancel(&self, id: &MessageId) -> Result<Cancellation, StoreError> {
        let answer = self.store.cancel(std::slice::from_ref(id)).await?;
        let answer = answer.first().copied().unwrap_or(Cancellation::NotFound);
        if answer == Cancellation::Cancelled {
            self.reporter.report(Event::Cancelled { id });
        }
        Ok(answer)
    }

    /// Gives a message another due time; [`Due::NOW`] sends it at once.
    ///
    /// # Errors
    /// When the store cannot be asked or the time is beyond the end of time.
    pub async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        let answer = self.store.reschedule(id, due).await?;
        if let Rescheduling::Rescheduled(due) = answer {
            self.reporter.report(Event::Rescheduled { id, due });
        }
        Ok(answer)
    }

    /// Looks a message up.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.store.get(id).await
    }

    /// Lists messages, a page at a time.
    ///
    /// # Errors
    /// When the store cannot be asked or the cursor is not one of its own.
    pub async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.store.list(query).await
    }

    /// Counts messages.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub async fn stats(&self) -> Result<Stats, StoreError> {
        self.store.stats().await
    }

    /// The mode that delivery runs in.
    pub fn mode(&self) -> TransactionMode {
        self.mode
    }

    /// The breakers that are tripped now.
    pub fn tripped_breakers(&self) -> Vec<BreakerName> {
        self.reporter.tripped_now()
    }

    /// Whether messages are being delivered, and taken from the queue if there is a [pump](Builder::pump): until it was
    /// [stopped](Self::stop), or died of a fault of its own, which is raised as a critical error.
    pub fn is_running(&self) -> bool {
        self.engines().all(Running::is_running)
    }

    /// Stops: claims and receives nothing more, waits for what is under way for at most the drain time, and gives the
    /// rest back. Messages can be sent afterwards; they wait for the next start.
    pub async fn stop(&self) -> Stopped {
        self.engines().for_each(Running::tell_to_stop);
        let mut cut_off = 0;
        for engine in self.engines() {
            cut_off += engine.stopped().await.cut_off;
        }
        // The process may end now. What others are not told of they find by looking.
        let _ = tokio::time::timeout(FLUSH, self.store.flush()).await;
        Stopped { cut_off }
    }

    fn engines(&self) -> impl Iterator<Item = &Running> {
        std::iter::once(&self.poller).chain(&self.pump)
    }
}
