//! The seam to the destinations.

use std::{error::Error, fmt, sync::Arc};

use async_trait::async_trait;

use crate::{Enlistment, OutgoingMessage, StoreError};

/// Sends messages to their destinations.
#[async_trait]
pub trait Dispatcher: fmt::Debug + Send + Sync + 'static {
    /// Whether this dispatcher can send within the given live transaction, proved by something that only the
    /// one database behind both can show.
    ///
    /// # Errors
    /// When it cannot find out.
    async fn joins(&self, transaction: Enlistment<'_>) -> Result<bool, StoreError>;

    /// Sends a batch; one outcome each, in order.
    ///
    /// Contract:
    /// - `Ok` means that the destination holds the message as durably as it holds anything
    /// - one message's failure does not keep the others from being sent: a missing queue is
    ///   [`NoDestination`](DispatchErrorKind::NoDestination), a message that is too large
    ///   [`Rejected`](DispatchErrorKind::Rejected)
    /// - messages for one destination keep their order
    /// - within a transaction, what is sent appears if and only if that commits
    /// - dropping the future may leave some sent and some not, none twice
    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        within: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>>;
}

#[async_trait]
impl<D: Dispatcher + ?Sized> Dispatcher for Arc<D> {
    async fn joins(&self, transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        (**self).joins(transaction).await
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        within: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        (**self).dispatch(messages, within).await
    }
}

/// A message was not sent.
#[derive(Debug)]
pub struct DispatchError {
    kind: DispatchErrorKind,
    detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Whose fault it was that a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DispatchErrorKind {
    /// The destination's, or the way's to it: it is down, unreachable, throttled or full, or access is
    /// refused. The message is not to blame; it waits.
    Unavailable,
    /// There is no such destination. Trying again is of no use.
    NoDestination,
    /// The message's own: the destination is there and refuses this one.
    Rejected,
}

impl DispatchError {
    /// An error of `kind`; `detail` is one lower-case line.
    pub fn new(kind: DispatchErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// The same, caused by `source`.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Whose fault it was.
    pub fn kind(&self) -> DispatchErrorKind {
        self.kind
    }
}

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error for DispatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
