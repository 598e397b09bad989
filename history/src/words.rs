//! Events from what the core's types say.

use jiff::{SignedDuration, Timestamp};
use postdate_core::{
    DelayedMessage, DispatchError, DispatchErrorKind, Due, DueMessage, MessageId, OutgoingMessage,
    QueuedMessage, error_queue,
};

use crate::{
    Cancellation, Event, Failure, Fetched, Outcome, Queued, Rescheduling, Settled, SettledCopy, Wanted, Way,
    What, content,
};

impl What {
    /// A client begins to store a message.
    pub fn attempted(
        DelayedMessage { message, due }: &DelayedMessage,
        patience: Option<SignedDuration>,
    ) -> Self {
        let due = match due {
            Due::At(instant) => Wanted::At(*instant),
            Due::After(delay) => Wanted::After(signed(*delay)),
        };
        Self::Attempted { id: message.id.to_string(), content: content_of(message), due, patience }
    }

    /// The store answered to a cancellation.
    pub fn cancelled(id: &MessageId, answer: postdate_core::Cancellation) -> Self {
        let answer = match answer {
            postdate_core::Cancellation::Cancelled => Cancellation::Cancelled,
            postdate_core::Cancellation::InFlight => Cancellation::InFlight,
            postdate_core::Cancellation::NotFound => Cancellation::NotFound,
        };
        Self::Cancelled { id: id.to_string(), answer }
    }

    /// The store answered to a rescheduling.
    pub fn rescheduled(id: &MessageId, answer: postdate_core::Rescheduling) -> Self {
        let answer = match answer {
            postdate_core::Rescheduling::Rescheduled(due) => Rescheduling::Rescheduled(due),
            postdate_core::Rescheduling::InFlight => Rescheduling::InFlight,
            postdate_core::Rescheduling::NotFound => Rescheduling::NotFound,
        };
        Self::Rescheduled { id: id.to_string(), answer }
    }

    /// The process got a claim on messages.
    pub fn fetched(claim: u64, until: Option<Timestamp>, messages: &[DueMessage]) -> Self {
        let fetched = |DueMessage { message, due, failures }: &DueMessage| Fetched {
            id: message.id.to_string(),
            due: *due,
            failures: *failures,
        };
        Self::Fetched { claim, until, messages: messages.iter().map(fetched).collect() }
    }

    /// Messages were removed, where the answer says so.
    pub fn removed(claim: u64, ids: &[MessageId], held: &[bool]) -> Self {
        let settled = |(id, held): (&MessageId, &bool)| Settled { id: id.to_string(), held: *held };
        Self::Removed { claim, messages: ids.iter().zip(held).map(settled).collect() }
    }

    /// Failures were counted, where the answer says so, at `from` or later.
    pub fn failed(claim: u64, from: Timestamp, failures: &[postdate_core::Failure], held: &[bool]) -> Self {
        let failure = |(failure, held): (&postdate_core::Failure, &bool)| Failure {
            id: failure.id.to_string(),
            retry_after: signed(failure.retry_after),
            held: *held,
        };
        Self::Failed { claim, from, messages: failures.iter().zip(held).map(failure).collect() }
    }

    /// Messages are given back.
    pub fn released(claim: u64, ids: &[MessageId]) -> Self {
        Self::Released { claim, ids: ids.iter().map(MessageId::to_string).collect() }
    }

    /// The process got a lock on messages in the queue.
    pub fn received(claim: u64, until: Option<Timestamp>, messages: &[QueuedMessage]) -> Self {
        let queued =
            |queued: &QueuedMessage| Queued { position: queued.position, id: queued.message.id.to_string() };
        Self::Received { claim, until, messages: messages.iter().map(queued).collect() }
    }

    /// Messages were taken from the queue, where the answer says so.
    pub fn completed(claim: u64, positions: &[u64], held: &[bool]) -> Self {
        let settled = |(position, held): (&u64, &bool)| SettledCopy { position: *position, held: *held };
        Self::Completed { claim, messages: positions.iter().zip(held).map(settled).collect() }
    }

    /// The process begins to send.
    pub fn sending(messages: &[OutgoingMessage], way: Way) -> Self {
        Self::Sending { ids: messages.iter().map(|message| message.id.to_string()).collect(), way }
    }

    /// The process was told what became of what it sent.
    pub fn told(messages: &[OutgoingMessage], outcomes: &[Result<(), DispatchError>]) -> Self {
        let told = |(message, outcome): (&OutgoingMessage, &Result<(), DispatchError>)| {
            let outcome = match outcome.as_ref().map_err(DispatchError::kind) {
                Ok(()) => Outcome::Delivered,
                Err(DispatchErrorKind::Unavailable) => Outcome::Unavailable,
                Err(DispatchErrorKind::NoDestination | DispatchErrorKind::Rejected) => Outcome::Refused,
            };
            (message.id.to_string(), outcome)
        };
        Self::Told { outcomes: messages.iter().zip(outcomes).map(told).collect() }
    }

    /// A destination has a message.
    pub fn delivered(message: &OutgoingMessage) -> Self {
        Self::Delivered { id: message.id.to_string(), content: content_of(message) }
    }

    /// The error queue has a message.
    pub fn moved(copy: &OutgoingMessage) -> Self {
        let id = copy.id.to_string();
        match error_queue::restore(copy) {
            Ok(failed) => Self::Moved {
                id,
                content: Some(content_of(&failed.original)),
                attempts: failed.attempts,
                reason: failed.reason,
            },
            Err(error) => Self::Moved { id, content: None, attempts: 0, reason: error.to_string() },
        }
    }
}

impl Event {
    /// What was found in the queue of a destination or in the error queue: it has been there since it was put there.
    pub fn arrived(queued: &QueuedMessage, way: Way) -> Self {
        let what = match way {
            Way::Destination => What::delivered(&queued.message),
            Way::ErrorQueue => What::moved(&queued.message),
        };
        Self::outside(queued.enqueued, what)
    }
}

fn content_of(message: &OutgoingMessage) -> u64 {
    content([message.destination.as_str().as_bytes(), message.headers.as_bytes(), &message.body])
}

pub(crate) fn signed(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
