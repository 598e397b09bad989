//! What all handles share.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use super::{queues::Queue, rows::Rows};
use crate::{
    Address, ClaimKind, Clock, EndpointName, Operation, OutgoingMessage, StoreError, StoreErrorKind,
};

pub(super) const RESOLUTION: Duration = Duration::from_micros(1);
pub(super) const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// More: a copy in the error queue carries the story of its failure, too, and what is sent to be delayed may turn out
/// to be too large for that.
pub(super) const MAX_QUEUED_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// Everything there is, behind one lock: what is done under one locking is one transaction.
pub(super) struct Place {
    clock: Arc<dyn Clock>,
    claims: ClaimKind,
    lease: Duration,
    contents: Mutex<Contents>,
}

#[derive(Default)]
pub(super) struct Contents {
    pub(super) endpoints: BTreeMap<EndpointName, Rows>,
    pub(super) queues: BTreeMap<Address, Queue>,
    last_claim: u64,
    last_position: u64,
}

/// Whose something is, and until when.
#[derive(Clone, Copy)]
pub(super) struct Hold {
    pub(super) claim: u64,
    pub(super) until: Timestamp,
}

impl Place {
    pub(super) fn new(clock: Arc<dyn Clock>, claims: ClaimKind, lease: Duration) -> Self {
        Self { clock, claims, lease, contents: Mutex::default() }
    }

    pub(super) fn claims(&self) -> ClaimKind {
        self.claims
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// When a lease that is taken or renewed at `now` ends.
    pub(super) fn lease_end(&self, now: Timestamp) -> Timestamp {
        later(now, self.lease)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("clock", &self.clock)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Contents {
    pub(super) fn rows(&mut self, endpoint: &EndpointName) -> &mut Rows {
        self.endpoints.entry(endpoint.clone()).or_default()
    }

    /// The number of a new claim. A number is never used twice: that is the fence against stale claims.
    pub(super) fn next_claim(&mut self) -> u64 {
        self.last_claim += 1;
        self.last_claim
    }

    /// Puts a message at the end of the queue that it is for.
    pub(super) fn enqueue(&mut self, message: OutgoingMessage, now: Timestamp) {
        self.last_position += 1;
        let queue = self.queues.entry(message.destination.clone()).or_default();
        queue.push(self.last_position, message, now);
    }
}

impl Hold {
    pub(super) fn is_valid(self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// `by` after `now`, or the end of time.
pub(super) fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

pub(super) fn error(
    kind: StoreErrorKind,
    operation: Operation,
    detail: impl Into<Cow<'static, str>>,
) -> StoreError {
    StoreError::new(kind, operation, "memory", detail)
}
