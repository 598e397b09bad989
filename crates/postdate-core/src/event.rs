//! What happens, as a stream of typed events. Tracing, metrics and audit are derived from it.

use std::{fmt, time::Duration};

use jiff::Timestamp;

use crate::{Address, EndpointName, MessageId, StoreError, TransactionMode};

/// Is told what happens. Called on the hot path: be quick, and do not block.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &Event<'_>);
}

/// Something that happened. Contains no body and no header value.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Delivery began.
    Started {
        /// For this endpoint.
        endpoint: &'a EndpointName,
        /// In this mode.
        mode: TransactionMode,
    },
    /// Delivery ended.
    Stopped {
        /// How many batches were cut off by the end of the drain time. Their messages were given back.
        cut_off: usize,
    },
    /// A pump began to take messages from the endpoint's queue.
    PumpStarted {
        /// For this endpoint.
        endpoint: &'a EndpointName,
    },
    /// A pump ended.
    PumpStopped {
        /// How many batches were cut off by the end of the drain time. Their messages were given back.
        cut_off: usize,
    },
    /// A pump took messages from the endpoint's queue, to store them.
    Received {
        /// How many.
        count: usize,
    },
    /// A message was stored.
    Stored {
        /// Its id.
        id: &'a MessageId,
        /// Where it will go.
        destination: &'a Address,
        /// When, as stored.
        due: Timestamp,
    },
    /// Due messages were fetched.
    Fetched {
        /// How many.
        count: usize,
        /// How late the oldest of them was.
        lateness: Duration,
    },
    /// A message was delivered.
    Dispatched {
        /// Its id.
        id: &'a MessageId,
        /// Where it went.
        destination: &'a Address,
        /// How long after its due time, by the store's clock.
        lateness: Duration,
        /// How many attempts it took.
        attempts: u32,
    },
    /// An attempt failed and will be repeated.
    AttemptFailed {
        /// The message.
        id: &'a MessageId,
        /// Where it was to go.
        destination: &'a Address,
        /// How many attempts there were so far.
        attempts: u32,
        /// How long until the next.
        retry_after: Duration,
        /// What went wrong.
        error: &'a str,
    },
    /// A destination was unavailable; its messages were given back and no attempt was counted.
    Held {
        /// The destination.
        destination: &'a Address,
        /// How many messages.
        count: usize,
        /// How long until the next try.
        retry_after: Duration,
        /// What went wrong.
        error: &'a str,
    },
    /// A message was moved to the error queue.
    MovedToErrorQueue {
        /// The message.
        id: &'a MessageId,
        /// Where it was to go.
        destination: &'a Address,
        /// How many attempts there were.
        attempts: u32,
        /// Why.
        reason: Reason,
        /// What went wrong.
        error: &'a str,
    },
    /// Moving to the error queue or counting a failure did not work; the message stays in the store.
    RecoveryFailed {
        /// The message.
        id: &'a MessageId,
        /// What went wrong.
        error: &'a str,
    },
    /// A delivered message was no longer held when it was to be removed, or a stored one when it was to be taken from
    /// the queue: it may be delivered twice.
    PossibleDuplicate {
        /// The message.
        id: &'a MessageId,
        /// Where it went.
        destination: &'a Address,
    },
    /// A call to the store or to a pump's queue failed. It will be repeated.
    StoreFailed {
        /// How long until then.
        retry_after: Duration,
        /// What went wrong.
        error: &'a StoreError,
    },
    /// A message was cancelled.
    Cancelled {
        /// The message.
        id: &'a MessageId,
    },
    /// A message was given another due time.
    Rescheduled {
        /// The message.
        id: &'a MessageId,
        /// The new time.
        due: Timestamp,
    },
    /// A breaker tripped: what it watches has failed for too long.
    BreakerTripped {
        /// Which.
        breaker: &'a BreakerName,
        /// The last failure.
        error: &'a str,
    },
    /// A breaker that had tripped closed again.
    BreakerClosed {
        /// Which.
        breaker: &'a BreakerName,
    },
}

/// Why a message went to the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// All attempts failed.
    RetriesExhausted,
    /// There is no such destination.
    NoDestination,
    /// It was later than [`CatchUp::maximum_lateness`](crate::CatchUp::maximum_lateness).
    Expired,
    /// It came from the queue of a pump and cannot be stored: it does not say when or where, or the store refuses it.
    NotStorable,
}

impl Reason {
    pub(crate) const ALL: [Self; 4] =
        [Self::RetriesExhausted, Self::NoDestination, Self::Expired, Self::NotStorable];

    /// The word for it in headers and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetriesExhausted => "retries-exhausted",
            Self::NoDestination => "no-destination",
            Self::Expired => "expired",
            Self::NotStorable => "not-storable",
        }
    }
}

/// A circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerName {
    /// Watches storing.
    Store,
    /// Watches fetching and removing.
    Fetch,
    /// Watches receiving from a pump's queue and settling there.
    Receive,
    /// Watches one destination.
    Dispatch(Address),
    /// Watches counting failures and moving to the error queue.
    Recovery,
}

impl fmt::Display for BreakerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store => f.write_str("store"),
            Self::Fetch => f.write_str("fetch"),
            Self::Receive => f.write_str("receive"),
            Self::Dispatch(destination) => write!(f, "dispatch to {destination}"),
            Self::Recovery => f.write_str("recovery"),
        }
    }
}

/// A failure that lasts, for the critical-error action: raised once per episode of a breaker.
#[derive(Clone, Debug)]
pub struct CriticalError {
    /// The breaker that tripped.
    pub breaker: BreakerName,
    /// What the last failure said.
    pub error: String,
}

impl fmt::Display for CriticalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { breaker, error } = self;
        match breaker {
            BreakerName::Store => write!(f, "failed to store delayed messages: {error}"),
            BreakerName::Fetch => write!(f, "failed to fetch due delayed messages from the store: {error}"),
            BreakerName::Receive => write!(f, "failed to receive messages to be delayed: {error}"),
            BreakerName::Dispatch(to) => write!(f, "failed to dispatch delayed messages to {to}: {error}"),
            BreakerName::Recovery => {
                write!(f, "failed to execute error handling for delayed message forwarding: {error}")
            }
        }
    }
}
