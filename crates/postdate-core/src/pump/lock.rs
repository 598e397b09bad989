//! The lock on a received batch: it is renewed while there is work, and nothing is settled after it has ended.

use std::{pin::pin, sync::Arc, time::Duration};

use super::Shared;
use crate::{
    Operation, ReceiveClaim, StoreErrorKind,
    engine::{Deadline, sleep_until},
};

/// The pause after a failed call for a batch that only waits: there may be many of them, and a queue that is away is
/// to be called seldom all the same.
const WAITING: Duration = Duration::from_secs(5);

/// The lock on a batch. Dropping it gives back what was not settled.
pub(super) struct Lock {
    shared: Arc<Shared>,
    claim: Box<dyn ReceiveClaim>,
    deadline: Arc<Deadline>,
    shortest_pause: Duration,
}

impl Lock {
    pub(super) fn new(shared: Arc<Shared>, claim: Box<dyn ReceiveClaim>) -> Self {
        let deadline = Arc::new(Deadline::new(claim.expires()));
        Self { shared, claim, deadline, shortest_pause: Duration::ZERO }
    }

    /// From here on there is no hurry.
    pub(super) fn waits(&mut self) {
        self.shortest_pause = WAITING;
    }

    pub(super) fn deadline(&self) -> Arc<Deadline> {
        self.deadline.clone()
    }

    /// Does some work and renews the lock meanwhile. `None` if the lock ends before the work: it is given up.
    pub(super) async fn keep<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = sleep_until(self.deadline.sending_ends()) => return None,
                () = sleep_until(self.deadline.renewal()) => {}
            }
            let (deadline, renewal) = (self.deadline(), self.renew());
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = renewal => {}
                () = sleep_until(deadline.sending_ends()) => return None,
            }
        }
    }

    async fn renew(&mut self) {
        match self.claim.renew().await {
            Ok(()) => {
                self.shared.queue_answered(Operation::Renew);
                self.deadline.extend(self.claim.expires());
            }
            Err(error) if error.kind() == StoreErrorKind::ClaimLost => self.deadline.lose(),
            Err(error) => {
                let pause = self.shared.queue_failed(Operation::Renew, &error);
                self.deadline.renew_after(pause.max(self.shortest_pause));
            }
        }
    }

    /// Takes messages from the queue, however often it has to be tried: they are safe elsewhere, and giving up would
    /// bring them again. Answers for each whether it was still held.
    pub(super) async fn complete(&mut self, positions: &[u64]) -> Vec<bool> {
        while !positions.is_empty() && self.deadline.allows_sending() {
            match self.claim.complete(positions).await {
                Ok(held) => {
                    self.shared.queue_answered(Operation::Settle);
                    return held;
                }
                Err(error) if error.kind() == StoreErrorKind::ClaimLost => {
                    self.shared.queue_answered(Operation::Settle);
                    self.deadline.lose();
                }
                Err(error) => {
                    let pause = self.shared.queue_failed(Operation::Settle, &error);
                    self.keep(tokio::time::sleep(pause.max(self.shortest_pause))).await;
                }
            }
        }
        vec![false; positions.len()]
    }

    /// Gives messages back. If that fails they go back when the lock is dropped.
    pub(super) async fn give_back(&mut self, positions: &[u64]) {
        if positions.is_empty() || !self.deadline.allows_sending() {
            return;
        }
        match self.claim.abandon(positions).await {
            Ok(_) => self.shared.queue_answered(Operation::Release),
            Err(error) => {
                self.shared.queue_failed(Operation::Release, &error);
            }
        }
    }
}
