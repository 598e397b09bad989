//! A queue that fails when it is told to, and counts what it is asked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, Operation, ReceiveClaim, ReceivedBatch, Receiver, Selection, StoreError, StoreErrorKind,
};

/// What the queue is to do wrong, and what it was asked.
#[derive(Debug, Default)]
pub(super) struct QueueTrouble {
    pub(super) receiving_fails: AtomicBool,
    pub(super) receiving_panics: AtomicBool,
    pub(super) waiting_panics: AtomicBool,
    /// It completes, and the answer is lost.
    pub(super) completions_are_lost: AtomicBool,
    pub(super) completing_fails: AtomicBool,
    pub(super) completing_panics: AtomicBool,
    pub(super) renewing_fails: AtomicBool,
    /// It does not tell its clock.
    pub(super) has_no_clock: AtomicBool,
    pub(super) receives: AtomicUsize,
    pub(super) completes: AtomicUsize,
    pub(super) renewals: AtomicUsize,
}

#[derive(Debug)]
pub(super) struct TroubledQueue(pub(super) Arc<dyn Receiver>, pub(super) Arc<QueueTrouble>);

#[derive(Debug)]
struct TroubledClaim(Box<dyn ReceiveClaim>, Arc<QueueTrouble>);

fn failure(operation: Operation) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, operation, "troubled queue", "planted failure")
}

#[async_trait]
impl Receiver for TroubledQueue {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        self.1.receives.fetch_add(1, Relaxed);
        assert!(!self.1.receiving_panics.load(Relaxed), "planted panic");
        if self.1.receiving_fails.load(Relaxed) {
            return Err(failure(Operation::Receive));
        }
        let ReceivedBatch { messages, claim } = self.0.try_receive(selection).await?;
        Ok(ReceivedBatch { messages, claim: Box::new(TroubledClaim(claim, self.1.clone())) })
    }

    async fn changed(&self) {
        assert!(!self.1.waiting_panics.load(Relaxed), "planted panic");
        self.0.changed().await;
    }
}

#[async_trait]
impl ReceiveClaim for TroubledClaim {
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        self.1.completes.fetch_add(1, Relaxed);
        assert!(!self.1.completing_panics.load(Relaxed), "planted panic");
        if self.1.completing_fails.load(Relaxed) {
            return Err(failure(Operation::Settle));
        }
        let held = self.0.complete(positions).await;
        if self.1.completions_are_lost.load(Relaxed) {
            return Err(failure(Operation::Settle));
        }
        held
    }

    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        self.0.abandon(positions).await
    }

    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError> {
        self.0.move_to(positions, queue).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        self.1.renewals.fetch_add(1, Relaxed);
        if self.1.renewing_fails.load(Relaxed) {
            return Err(failure(Operation::Renew));
        }
        self.0.renew().await
    }

    fn expires(&self) -> Option<Instant> {
        self.0.expires()
    }

    fn received(&self) -> Option<Timestamp> {
        self.0.received().filter(|_| !self.1.has_no_clock.load(Relaxed))
    }
}
