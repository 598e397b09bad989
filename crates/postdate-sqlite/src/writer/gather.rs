//! Deciding what shares a transaction.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use super::job::Job;

/// No transaction holds more: those behind should not wait for ever.
const LARGEST: usize = 512;

/// How long to wait for callers of the last group who come straight back with more.
const PATIENCE: Duration = Duration::from_micros(100);

/// Takes groups of jobs from a queue.
///
/// Callers in a loop come back a moment after they were answered. Without patience the first of them would get
/// a transaction of its own, and the others the next: groups of one and of seven in turn, at twice the cost. One
/// that is alone is never made to wait.
pub(super) struct Gatherer {
    queue: Receiver<Box<dyn Job>>,
    last: usize,
}

impl Gatherer {
    pub(super) fn new(queue: Receiver<Box<dyn Job>>) -> Self {
        Self { queue, last: 0 }
    }

    /// The next group: at least one job. `None` when nobody can submit any more.
    pub(super) fn next(&mut self) -> Option<Vec<Box<dyn Job>>> {
        let mut group = vec![self.queue.recv().ok()?];
        self.take_waiting(&mut group);
        if self.last > 1 && group.len() < self.last {
            self.wait_for_others(&mut group);
        }
        self.last = group.len();
        group.retain(|job| job.is_wanted());
        Some(group)
    }

    fn take_waiting(&self, group: &mut Vec<Box<dyn Job>>) {
        while group.len() < LARGEST
            && let Ok(job) = self.queue.try_recv()
        {
            group.push(job);
        }
    }

    fn wait_for_others(&self, group: &mut Vec<Box<dyn Job>>) {
        let deadline = Instant::now() + PATIENCE;
        while group.len() < self.last {
            match self.queue.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(job) => group.push(job),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
