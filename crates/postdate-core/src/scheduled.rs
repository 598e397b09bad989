//! The seam through which callers and operators look at delayed messages and change their minds.

use std::{fmt, num::NonZeroUsize};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{Address, Due, DueMessage, MessageId, StoreError};

/// Looking at delayed messages, cancelling and rescheduling them, by the caller's own id.
#[async_trait]
pub trait ScheduledMessages: fmt::Debug + Send + Sync + 'static {
    /// One message with its content.
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError>;

    /// A page of messages that match, in the order of their next attempts.
    ///
    /// Contract:
    /// - following the cursors shows every message that was there all along exactly once
    /// - a cursor that was not made by this store is [`Invalid`](crate::StoreErrorKind::Invalid)
    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError>;

    /// Takes messages back before they are sent; one answer each, in order.
    ///
    /// Contract:
    /// - of a cancellation and a claim exactly one wins, and the answer is true
    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError>;

    /// Gives a message another due time ([`Due::NOW`] for at once). Its failure count stays, its retry time
    /// goes.
    ///
    /// Contract:
    /// - of a rescheduling and a claim exactly one wins, and the answer is true
    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError>;

    /// Counts. This reads through the store: it is for people, not for every second.
    async fn stats(&self) -> Result<Stats, StoreError>;
}

/// A delayed message as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledMessage {
    /// The message.
    pub message: DueMessage,
    /// How it stands.
    pub state: MessageState,
    /// When it will be tried next: its due time, or its retry time after a failure.
    pub next_attempt: Timestamp,
    /// What the last failed attempt said.
    pub last_error: Option<String>,
}

/// A line in a listing: a message without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledSummary {
    /// Its id.
    pub id: MessageId,
    /// Where it goes.
    pub destination: Address,
    /// When it is due.
    pub due: Timestamp,
    /// When it will be tried next.
    pub next_attempt: Timestamp,
    /// How many attempts failed.
    pub failures: u32,
    /// What the last failed attempt said.
    pub last_error: Option<String>,
    /// The size of its body in bytes.
    pub body_bytes: u64,
    /// How it stands.
    pub state: MessageState,
}

/// How a stored message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageState {
    /// It waits for its time or for a dispatcher.
    Pending,
    /// A dispatcher holds it.
    InFlight,
}

/// What to list.
#[derive(Clone, Debug)]
pub struct ListQuery {
    /// Only these.
    pub filter: Filter,
    /// At most so many on this page.
    pub limit: NonZeroUsize,
    /// Go on after this.
    pub after: Option<Cursor>,
}

impl ListQuery {
    /// The first page of what matches.
    pub fn new(filter: Filter, limit: NonZeroUsize) -> Self {
        Self { filter, limit, after: None }
    }
}

/// Which messages to list. Everything that is set must match.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only for this destination.
    pub destination: Option<Address>,
    /// Only ids that begin so.
    pub id_prefix: Option<String>,
    /// Only those due before this.
    pub due_before: Option<Timestamp>,
    /// Only those due at this or later.
    pub due_from: Option<Timestamp>,
    /// Only those that failed at least so often.
    pub min_failures: u32,
}

/// A place in a listing, opaque to everybody but the store that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// A page of a listing.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The messages.
    pub messages: Vec<ScheduledSummary>,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<Cursor>,
}

/// What became of a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// The message is gone and was not sent.
    Cancelled,
    /// A dispatcher holds it: it is being sent, and too late to take back.
    InFlight,
    /// There is no such message: it was sent, cancelled, or never there.
    NotFound,
}

/// What became of a rescheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescheduling {
    /// The message is due at this time now.
    Rescheduled(Timestamp),
    /// A dispatcher holds it: too late.
    InFlight,
    /// There is no such message.
    NotFound,
}

/// Counts of an endpoint's delayed messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// All that are stored.
    pub pending: u64,
    /// Those whose time has come.
    pub overdue: u64,
    /// Those that a dispatcher holds, as far as the store can tell.
    pub in_flight: u64,
    /// Those with at least one failed attempt.
    pub failing: u64,
    /// The earliest due time among the overdue.
    pub oldest_overdue: Option<Timestamp>,
    /// The earliest attempt time among the others.
    pub next_due: Option<Timestamp>,
    /// The store's clock.
    pub now: Timestamp,
}
