//! What can happen.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Rules;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// To or in which process, if it concerns one. Every start of a program is another process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
///
/// Who gives something up says so before he does, who gets something when he has it: between the two nobody seems
/// to hold it, and no two ever do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// The run began. The first event of a history.
    Began {
        /// Its rules.
        rules: Rules,
    },

    /// A client begins to store a message; once, however often it tries.
    Attempted {
        /// The message.
        id: String,
        /// A [hash](crate::content) of its destination, headers and body.
        content: u64,
        /// When it is to be due.
        due: Wanted,
        /// How late it may be while faults happen; none if nothing is promised.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patience: Option<SignedDuration>,
    },
    /// The store took it.
    Stored {
        /// The message.
        id: String,
        /// When it is due, as stored.
        due: Timestamp,
    },
    /// The client was told so.
    Acknowledged {
        /// The message.
        id: String,
        /// When it is due, as told.
        due: Timestamp,
    },
    /// The store answered to a cancellation.
    Cancelled {
        /// The message.
        id: String,
        /// The answer.
        answer: Cancellation,
    },
    /// The store answered to a rescheduling.
    Rescheduled {
        /// The message.
        id: String,
        /// The answer.
        answer: Rescheduling,
    },

    /// The process got a claim on messages.
    Fetched {
        /// The number of the claim, used once.
        claim: u64,
        /// When its lease ends, by the store's clock; none if it ends with its process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// What it holds.
        messages: Vec<Fetched>,
    },
    /// Messages were removed for good, or not.
    Removed {
        /// Under this claim.
        claim: u64,
        /// Which.
        messages: Vec<Settled>,
    },
    /// Failures were counted, or not, and the messages given back.
    Failed {
        /// Under this claim.
        claim: u64,
        /// When, by the store's clock, or earlier: in a transaction that is before its commit.
        from: Timestamp,
        /// Which.
        messages: Vec<Failure>,
    },
    /// Messages are given back unchanged.
    Released {
        /// Under this claim.
        claim: u64,
        /// Which.
        ids: Vec<String>,
    },
    /// A claim goes on.
    Renewed {
        /// This claim.
        claim: u64,
        /// Until then.
        until: Timestamp,
    },
    /// A claim ended in order.
    Committed {
        /// This claim.
        claim: u64,
    },
    /// A claim was dropped: what it held is free, whether it was sent or not.
    Dropped {
        /// This claim.
        claim: u64,
    },
    /// A claim is out of its holder's reach: it will end with its lease.
    Buried {
        /// This claim.
        claim: u64,
    },

    /// The queue of a pump took a message that a client hands over.
    HandedOver {
        /// The message.
        id: String,
        /// Where it stands, used once.
        position: u64,
    },
    /// The client was told so.
    Accepted {
        /// The message.
        id: String,
    },
    /// The process got a lock on messages in the queue.
    Received {
        /// The number of the lock, used once.
        claim: u64,
        /// When it ends, by the store's clock; none if it ends with its process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// What it holds.
        messages: Vec<Queued>,
    },
    /// Messages were taken from the queue, or not.
    Completed {
        /// Under this lock.
        claim: u64,
        /// Which.
        messages: Vec<SettledCopy>,
    },
    /// Messages are given back to the queue.
    GivenBack {
        /// Under this lock.
        claim: u64,
        /// Which.
        positions: Vec<u64>,
    },
    /// A lock goes on.
    LockRenewed {
        /// This lock.
        claim: u64,
        /// Until then.
        until: Timestamp,
    },
    /// A lock was dropped: what it held is free, whether it was stored or not.
    LockDropped {
        /// This lock.
        claim: u64,
    },
    /// A lock is out of its holder's reach: it will end by itself.
    LockBuried {
        /// This lock.
        claim: u64,
    },

    /// The process begins to send.
    Sending {
        /// Which messages.
        ids: Vec<String>,
        /// Where to.
        way: Way,
    },
    /// A destination has a message.
    Delivered {
        /// The message.
        id: String,
        /// The hash of what arrived.
        content: u64,
    },
    /// The error queue has a message.
    Moved {
        /// The message.
        id: String,
        /// The hash of the original in it; none if that cannot be restored.
        content: Option<u64>,
        /// How many attempts it says were made.
        attempts: u32,
        /// Why it says that it is there: `retries-exhausted`, `no-destination`, `expired` or `not-storable`.
        reason: String,
    },
    /// A destination, or a store, will not have a message, through no fault but the message's.
    Refused {
        /// The message.
        id: String,
        /// Why.
        why: Refusal,
    },
    /// The process was told what became of what it sent.
    Told {
        /// Each message and its outcome.
        outcomes: Vec<(String, Outcome)>,
    },

    /// The process was killed. Of a claim with a lease that frees nothing.
    Died,
    /// The process was frozen, or calls of it fail: its leases may run out.
    Disturbed,
    /// The process stopped in order: it holds nothing.
    Stopped,
    /// The store's clock leapt, and shows the time of this event now.
    ClockLeapt,
    /// From here on there are no faults.
    Healed,
    /// The store was looked at as a whole.
    Audited {
        /// All that is in it.
        ids: Vec<String>,
    },
}

/// When a client wants a message to be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// At an instant.
    At(Timestamp),
    /// So long after the store took it.
    After(SignedDuration),
}

/// What a store says to a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancellation {
    /// It is done.
    Cancelled,
    /// A claim holds it.
    InFlight,
    /// It is not there.
    NotFound,
}

/// What a store says to a rescheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rescheduling {
    /// It is due then.
    Rescheduled(Timestamp),
    /// A claim holds it.
    InFlight,
    /// It is not there.
    NotFound,
}

/// A message as it was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fetched {
    /// Its id.
    pub id: String,
    /// When it was due.
    pub due: Timestamp,
    /// Counted failures so far.
    pub failures: u32,
}

/// What a claim did to a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settled {
    /// The message.
    pub id: String,
    /// Whether the claim still held it, as the store said: otherwise nothing was done.
    pub held: bool,
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Queued {
    /// Where it stands.
    pub position: u64,
    /// Its id.
    pub id: String,
}

/// What a lock did to a message in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SettledCopy {
    /// Where it stood.
    pub position: u64,
    /// Whether the lock still held it, as the queue said: otherwise nothing was done.
    pub held: bool,
}

/// A counted failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// The message.
    pub id: String,
    /// Not to be tried again before so long.
    pub retry_after: SignedDuration,
    /// Whether the claim still held it, as the store said: otherwise nothing was done.
    pub held: bool,
}

/// Where something is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// To its destination.
    Destination,
    /// To the error queue.
    ErrorQueue,
}

/// Why a destination will not have a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It does not like it, or breaks over it.
    Rejected,
    /// There is no such destination.
    NoDestination,
    /// It does not get that far: no store takes it.
    NotStorable,
}

/// What a sender was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It arrived.
    Delivered,
    /// The destination could not be reached, or did not answer.
    Unavailable,
    /// It was refused.
    Refused,
}

impl Event {
    /// Outside of all processes.
    pub fn outside(at: Timestamp, what: What) -> Self {
        Self { at, process: None, what }
    }

    /// In or to a process.
    pub fn of(process: u32, at: Timestamp, what: What) -> Self {
        Self { at, process: Some(process), what }
    }
}
