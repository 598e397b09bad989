//! Delayed delivery as an application uses it.

mod builder;
mod start;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use tokio::{sync::watch, task::AbortHandle};

pub use builder::Builder;
pub use start::StartError;

use crate::{
    Address, BreakerName, Cancellation, DelayedMessage, DelayedMessageStore, Due, Event, InvalidName,
    ListQuery, Listing, Message, MessageId, Rescheduling, ScheduledMessage, Stats, StoreError,
    TransactionMode,
    machine::Breaker,
    observer::{Reporter, Turn},
};

/// Delayed delivery for one endpoint: takes messages that are due later and delivers them when they are.
///
/// Dropping it cuts delivery off: what was under way is given back and delivered at the next start, possibly
/// twice. [`stop`](Self::stop) ends it in order.
#[derive(Debug)]
pub struct DelayedDelivery {
    store: Arc<dyn DelayedMessageStore>,
    mode: TransactionMode,
    reporter: Reporter,
    store_breaker: Mutex<Breaker>,
    stop: watch::Sender<bool>,
    ended: watch::Receiver<Option<Stopped>>,
    poller: AbortHandle,
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
        let stored = self.store.store(messages).await;
        self.watch_storing(&stored);
        if let Ok(dues) = &stored {
            for (DelayedMessage { message, .. }, due) in messages.iter().zip(dues) {
                let (id, destination) = (&message.id, &message.destination);
                self.reporter.report(Event::Stored { id, destination, due: *due });
            }
        }
        stored
    }

    fn watch_storing(&self, stored: &Result<Vec<Timestamp>, StoreError>) {
        self.reporter.watch(&self.store_breaker, |breaker| {
            let turn = match stored {
                Err(error) if error.is_transient() => breaker
                    .failure(tokio::time::Instant::now().into_std())
                    .tripped
                    .then(|| Turn::Tripped(BreakerName::Store, error.to_string())),
                // A message that is refused proves that the store is there.
                _ => breaker.success().then_some(Turn::Closed(BreakerName::Store)),
            };
            ((), turn.into_iter().collect())
        });
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

    /// Whether messages are being delivered: until it was [stopped](Self::stop), or died of a fault of its own,
    /// which is raised as a critical error.
    pub fn is_running(&self) -> bool {
        !self.poller.is_finished()
    }

    /// Stops: claims nothing more, waits for what is under way for at most the drain time, and gives the rest
    /// back. Messages can be sent afterwards; they wait for the next start.
    pub async fn stop(&self) -> Stopped {
        self.stop.send_replace(true);
        let mut ended = self.ended.clone();
        let stopped = ended.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
        stopped.unwrap_or(Stopped { cut_off: 0 })
    }
}

impl Drop for DelayedDelivery {
    fn drop(&mut self) {
        self.poller.abort();
    }
}
