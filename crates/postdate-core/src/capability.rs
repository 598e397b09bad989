//! How strongly fetching, sending and removing hold together, and what a store can do.

use std::{fmt, time::Duration};

/// How strongly fetching, sending and removing hold together, named as in the reference.
///
/// Every mode but [`TransactionScope`](Self::TransactionScope) delivers at least once: a crash between sending
/// and removing sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransactionMode {
    /// Nothing holds together.
    None,
    /// Fetching and removing are one claim.
    ReceiveOnly,
    /// As `ReceiveOnly`; what handling a message sends goes out with its completion.
    SendsAtomicWithReceive,
    /// Fetching, sending and removing are one transaction: exactly once. Only where store and destination
    /// are in the same database.
    TransactionScope,
}

impl TransactionMode {
    /// All modes, weakest first.
    pub const ALL: [Self; 4] =
        [Self::None, Self::ReceiveOnly, Self::SendsAtomicWithReceive, Self::TransactionScope];
}

impl fmt::Display for TransactionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// How a store keeps two dispatchers from taking the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimKind {
    /// One process dispatches at a time; a crash of it frees what it held at once.
    Process,
    /// Rows are locked by an open transaction; a broken connection frees them, and the claim is lost. What a claim does
    /// others see when it ends and not before: see [`Claim`](crate::Claim). It may
    /// [expire](crate::Claim::expires), where the server ends transactions that are idle.
    Transaction,
    /// Rows are held for so long and must be renewed; afterwards anybody may take them.
    Lease(Duration),
}

/// What a store can do and how much it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The modes it can be opened in.
    pub modes: &'static [TransactionMode],
    /// How it claims.
    pub claim: ClaimKind,
    /// The smallest step of its due times. They are rounded up to it.
    pub resolution: Duration,
    /// The greatest size of one message: headers and body together, in bytes.
    pub max_message_bytes: usize,
    /// Whether what it took survives a crash of the process.
    pub durable: bool,
}

impl Capabilities {
    /// Describes a store.
    pub const fn new(modes: &'static [TransactionMode], claim: ClaimKind) -> Self {
        Self { modes, claim, resolution: Duration::from_micros(1), max_message_bytes: 4 << 20, durable: true }
    }

    /// The same with another limit on the size of a message.
    #[must_use]
    pub const fn max_message_bytes(mut self, bytes: usize) -> Self {
        self.max_message_bytes = bytes;
        self
    }

    /// The same with a coarser or finer resolution.
    #[must_use]
    pub const fn resolution(mut self, step: Duration) -> Self {
        self.resolution = step;
        self
    }

    /// The same for a store that forgets when its process ends.
    #[must_use]
    pub const fn not_durable(mut self) -> Self {
        self.durable = false;
        self
    }

    /// Whether the store can be opened in this mode.
    pub fn supports(&self, mode: TransactionMode) -> bool {
        self.modes.contains(&mode)
    }
}
