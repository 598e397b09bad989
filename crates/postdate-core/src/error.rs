//! What can go wrong with a store or a queue.

use std::{borrow::Cow, error::Error, fmt};

/// A store or a set of queues could not do what it was asked to.
///
/// `Display` is one line: who, which operation, what is wrong and what to do about it. It never contains a
/// secret, a header value or a body.
pub struct StoreError {
    kind: StoreErrorKind,
    operation: Operation,
    store: Cow<'static, str>,
    detail: Cow<'static, str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached or is too busy. Trying again may help.
    Unavailable,
    /// There is no space left. Trying again helps once there is.
    Full,
    /// The claim was lost: its lease ran out or its connection broke. What it held belongs to others now.
    ClaimLost,
    /// Another message with this id and different content is there already.
    Conflict,
    /// The message is larger than the store takes.
    TooLarge,
    /// The request makes no sense: a due time beyond the end of time, a cursor from elsewhere.
    Invalid,
    /// There is no queue of this name.
    NoSuchQueue,
    /// The store has not been set up for this endpoint.
    NotSetUp,
    /// The store was written by a newer version of postdate.
    TooNew,
    /// The store cannot do this, in this mode or at all.
    Unsupported,
    /// The store was told to be somewhere or in some way that does not work.
    Configuration,
    /// What is stored is damaged, or is not ours.
    Corrupt,
    /// Anything else.
    Other,
}

/// What was being done when it went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Connecting or opening a file.
    Connect,
    /// Making tables.
    SetUp,
    /// Opening for an endpoint.
    Open,
    /// Storing messages.
    Store,
    /// Fetching due messages.
    FetchDue,
    /// Asking for the next due time.
    NextDue,
    /// Removing delivered messages.
    Remove,
    /// Counting failed attempts.
    IncrementFailureCount,
    /// Giving messages back.
    Release,
    /// Renewing a claim.
    Renew,
    /// Committing a claim.
    Commit,
    /// Looking at stored messages.
    Query,
    /// Cancelling.
    Cancel,
    /// Rescheduling.
    Reschedule,
    /// Sending to queues.
    Send,
    /// Receiving from a queue.
    Receive,
    /// Settling received messages.
    Settle,
    /// Creating, listing or purging queues.
    Administer,
}

impl StoreError {
    /// An error of `kind` in `operation`. `store` names the store without its secrets; `detail` is lower case,
    /// one line, and ends with what to do where that is known.
    pub fn new(
        kind: StoreErrorKind,
        operation: Operation,
        store: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, operation, store: store.into(), detail: detail.into(), source: None }
    }

    /// The same, caused by `source`.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// What was being done.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The store it happened in.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Whether the message is to blame: the store is there, and takes others, but not this one.
    pub fn blames_message(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Conflict | StoreErrorKind::TooLarge | StoreErrorKind::Invalid)
    }

    /// Whether the same call may succeed later without anybody changing anything in the program.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::Full | StoreErrorKind::ClaimLost)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.store, self.operation, self.detail)
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({:?}, {self}", self.kind)?;
        if let Some(source) = &self.source {
            write!(f, ", {source}")?;
        }
        f.write_str(")")
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::SetUp => "set up",
            Self::Open => "open",
            Self::Store => "store",
            Self::FetchDue => "fetch due messages",
            Self::NextDue => "find the next due time",
            Self::Remove => "remove",
            Self::IncrementFailureCount => "count a failure",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::Commit => "commit",
            Self::Query => "query",
            Self::Cancel => "cancel",
            Self::Reschedule => "reschedule",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Settle => "settle",
            Self::Administer => "administer queues",
        })
    }
}
