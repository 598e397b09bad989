//! The seam to a delayed message store. Start here to write one.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    Address, Capabilities, DelayedMessage, DueMessage, EndpointName, Enlistment, MessageId,
    ScheduledMessages, StoreError, TransactionMode,
};

/// A place where delayed messages can be kept: a file, a database, a storage account.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What the store can do.
    fn capabilities(&self) -> Capabilities;

    /// Makes what the endpoint needs: tables, indexes, containers.
    ///
    /// Contract:
    /// - doing it again changes nothing
    /// - eight processes may do it at once
    /// - a schema of a newer postdate is refused with [`TooNew`](crate::StoreErrorKind::TooNew) and left alone
    /// - a schema of an older one is brought up, and no message is lost
    /// - a user without the right to make tables is refused with
    ///   [`Configuration`](crate::StoreErrorKind::Configuration) if there is something to make
    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError>;

    /// What [`set_up`](Self::set_up) would run, as a script for somebody who has the right to make tables when this
    /// user has not. `None` where a store is not set up by statements.
    ///
    /// Contract:
    /// - run once or several times, it leaves what `set_up` leaves, and no message is lost
    fn set_up_script(&self, endpoint: &EndpointName) -> Option<String> {
        let _ = endpoint;
        None
    }

    /// Opens the store for an endpoint.
    ///
    /// Contract:
    /// - a mode outside [`capabilities`](Self::capabilities) is refused with
    ///   [`Unsupported`](crate::StoreErrorKind::Unsupported)
    /// - a store that was not set up is refused with [`NotSetUp`](crate::StoreErrorKind::NotSetUp), and one that a
    ///   newer postdate has set up with [`TooNew`](crate::StoreErrorKind::TooNew)
    /// - neither opening nor what is done afterwards needs the right to make tables
    /// - endpoints never see each other's messages
    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError>;

    /// Who dispatches, where one process at a time has the right to. For people: asking may write.
    ///
    /// # Errors
    /// When it cannot find out.
    async fn dispatching(&self, endpoint: &EndpointName) -> Result<Dispatching, StoreError> {
        let _ = endpoint;
        Ok(Dispatching::Unknown)
    }

    /// Why the store does not keep in full what postdate promises as it is set up now: it does not wait for its disk,
    /// say. For people: each is one lower-case line without secrets that names the setting, what follows from it and
    /// what to do.
    ///
    /// # Errors
    /// When it cannot find out.
    async fn warnings(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}

/// Who has the right to dispatch from a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dispatching {
    /// Somebody who uses this handle of the store.
    Here,
    /// Another process, or another handle in this one.
    Elsewhere,
    /// Nobody at the moment.
    Nobody,
    /// The store does not know, or any number of processes may.
    Unknown,
}

#[async_trait]
impl<B: Backend + ?Sized> Backend for Arc<B> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        (**self).set_up(endpoint).await
    }

    fn set_up_script(&self, endpoint: &EndpointName) -> Option<String> {
        (**self).set_up_script(endpoint)
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        (**self).open(endpoint, mode).await
    }

    async fn dispatching(&self, endpoint: &EndpointName) -> Result<Dispatching, StoreError> {
        (**self).dispatching(endpoint).await
    }

    async fn warnings(&self) -> Result<Vec<String>, StoreError> {
        (**self).warnings().await
    }
}

/// The delayed messages of one endpoint.
///
/// All methods may be called from many tasks at once, and every future may be dropped at any point: then the
/// call has happened as a whole or not at all.
#[async_trait]
pub trait DelayedMessageStore: ScheduledMessages + fmt::Debug + Send + Sync + 'static {
    /// Stores messages and answers with their due times as stored, in order.
    ///
    /// Contract:
    /// - all or none are stored; once it returned `Ok` they survive whatever the store promises to survive
    /// - the same id with the same content again is `Ok` and changes nothing, also after it failed or was
    ///   rescheduled: due times are compared as they were asked for, and only where both were absolute
    /// - the same id with different content is [`Conflict`](crate::StoreErrorKind::Conflict)
    /// - relative due times are resolved by the store's clock, and all are rounded up to its resolution
    /// - a message over the size limit is [`TooLarge`](crate::StoreErrorKind::TooLarge), a due time beyond the
    ///   end of time is [`Invalid`](crate::StoreErrorKind::Invalid)
    /// - headers and body come back byte for byte
    /// - an error other than those above leaves open whether it happened: store the same again to find out
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError>;

    /// Claims messages that are due by the store's clock, in the order (attempt time, order of storing).
    ///
    /// Contract:
    /// - no message is fetched before its time, nor before its retry time
    /// - no message is held by two claims that are valid at the same time
    /// - messages for the destinations in `except` are passed over
    /// - what was committed late with an earlier due time is found
    /// - a row that cannot be read is quarantined alone and does not stop the rest: it is not due again, it stays in
    ///   listings with what is wrong with it, and it can be cancelled
    /// - at most `limit` messages, and fewer if the bodies are large; at least one if any is due and free
    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError>;

    /// The earliest time at which a message may become free to fetch.
    ///
    /// Contract:
    /// - looks past what valid claims hold and past the destinations in `except`
    /// - a postponed message counts with its retry time, a held one with the end of its lease, if that is
    ///   the earliest
    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError>;

    /// Completes when a message may have become due earlier than [`next_due`](Self::next_due) last said.
    ///
    /// Contract:
    /// - never before the change is committed
    /// - a change between two calls is not missed
    /// - may complete without a reason, and a store that cannot tell may never complete: callers cap their waits
    /// - need not complete for what is due more than a minute ahead: callers look again within a minute
    async fn changed(&self);

    /// Waits until others were told of all that was changed through this handle before. For a program that ends: where
    /// a store tells others a little later than it answers, they may otherwise learn of it when they look again, within
    /// a minute.
    ///
    /// Contract:
    /// - others who wait for a [change](Self::changed) are woken by what was stored, though the handle is closed and its
    ///   runtime ends
    async fn flush(&self) {}
}

/// The lock on fetched messages. Dropping it gives everything back that was neither removed nor counted.
///
/// Contract:
/// - what a claim does after it was lost changes nothing and says so: `false`, or
///   [`ClaimLost`](crate::StoreErrorKind::ClaimLost)
/// - a message that is named twice in a call is settled once: the second answer is `false`
/// - effects are permanent at the latest when [`commit`](Self::commit) returns
///
/// Where claims are [transactions](crate::ClaimKind::Transaction), effects are permanent all together and not before
/// the claim ends. It ends when it is committed or dropped, and, but for
/// [`TransactionScope`](TransactionMode::TransactionScope), when nothing that it fetched is unsettled any more: neither
/// removed nor counted nor given back. Until then
/// - others see all that it fetched as held and unchanged, also what it has removed or given back
/// - the claim itself answers as if its effects were permanent
/// - a call that leaves the transaction broken is answered with [`ClaimLost`](crate::StoreErrorKind::ClaimLost), and so
///   is [`commit`](Self::commit) from then on if anything was settled: all of it is undone
///
/// Dropping it commits what it has settled, which may happen a little later; in `TransactionScope` it rolls all of it
/// back.
#[async_trait]
pub trait Claim: fmt::Debug + Send {
    /// Removes messages that were delivered. `false` where this claim no longer held the message: it may be
    /// delivered twice.
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError>;

    /// Counts a failed attempt of each and gives the message back, to be fetched again at its retry time.
    /// `false` where this claim no longer held the message.
    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError>;

    /// Gives messages back unchanged: others may fetch them at once, or when the claim ends if it is a
    /// [transaction](crate::ClaimKind::Transaction).
    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError>;

    /// Holds on for another term. Nothing to do where claims do not expire, or when nothing is held any more.
    async fn renew(&mut self) -> Result<(), StoreError>;

    /// When this claim ends unless it is renewed, by the monotonic clock of this process, counted from before
    /// the call that took it. `None` where claims do not expire.
    fn expires(&self) -> Option<Instant>;

    /// The transaction that a dispatcher may join. `Some` only in
    /// [`TransactionScope`](TransactionMode::TransactionScope) mode.
    fn enlist(&mut self) -> Option<Enlistment<'_>>;

    /// Makes everything permanent that was done through this claim and gives the rest back.
    async fn commit(self: Box<Self>) -> Result<(), StoreError>;
}

/// What to fetch.
#[derive(Clone, Copy, Debug)]
pub struct FetchDue<'a> {
    /// At most so many.
    pub limit: NonZeroUsize,
    /// None for these destinations.
    pub except: &'a [Address],
}

/// What was fetched.
#[derive(Debug)]
pub struct DueBatch {
    /// The messages, earliest first.
    pub messages: Vec<DueMessage>,
    /// The lock on them.
    pub claim: Box<dyn Claim>,
    /// The store's clock.
    pub now: Timestamp,
    /// Whether others hold due messages, or hold the right to dispatch at all: come back a little later.
    pub contended: bool,
}

/// When something will be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextDue {
    /// The time, if there is any message at all.
    pub due: Option<Timestamp>,
    /// The store's clock. Waits are computed from the difference, so that skewed clocks do not matter.
    pub now: Timestamp,
}

impl NextDue {
    /// How long from now until then: zero if it is past.
    pub fn wait(&self) -> Option<Duration> {
        self.due.map(|due| Duration::try_from(due.duration_since(self.now)).unwrap_or(Duration::ZERO))
    }
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Of this message.
    pub id: MessageId,
    /// Try again so long from now, by the store's clock.
    pub retry_after: Duration,
    /// What went wrong, for operators. Stores keep the first [`Failure::MAX_ERROR_CHARS`] characters.
    pub error: String,
}

impl Failure {
    /// How much of the error text is kept.
    pub const MAX_ERROR_CHARS: usize = 1_000;
}

/// One-message conveniences for every store.
pub trait DelayedMessageStoreExt: DelayedMessageStore {
    /// Stores one message and answers with its due time as stored.
    ///
    /// # Errors
    /// As [`DelayedMessageStore::store`].
    fn store_one(
        &self,
        message: DelayedMessage,
    ) -> impl Future<Output = Result<Timestamp, StoreError>> + Send {
        async move {
            let due = self.store(&[message]).await?;
            Ok(due.first().copied().unwrap_or(Timestamp::MAX))
        }
    }

    /// Claims up to `limit` due messages for any destination.
    ///
    /// # Errors
    /// As [`DelayedMessageStore::fetch_due`].
    fn fetch(&self, limit: NonZeroUsize) -> impl Future<Output = Result<DueBatch, StoreError>> + Send {
        async move { self.fetch_due(FetchDue { limit, except: &[] }).await }
    }
}

impl<S: DelayedMessageStore + ?Sized> DelayedMessageStoreExt for S {}
