//! Deciding what shares a transaction.

use std::{
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

use super::job::Job;

/// No transaction holds more: those behind should not wait for ever.
const LARGEST: usize = 512;

/// How long to wait, at least and at most, for callers of the last group who come straight back with more. In
/// between it is half of what the last transaction took: on a slow disk or a busy machine a missed one costs more,
/// and callers need longer.
const PATIENCE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));

/// Takes groups of jobs from a queue.
///
/// Callers in a loop come back a moment after they were answered. Without patience the first of them would get
/// a transaction of its own, and the others the next: groups of one and of seven in turn, at twice the cost. One
/// that is alone is never made to wait.
pub(super) struct Gatherer {
    queue: Receiver<Box<dyn Job>>,
    /// How many callers the last group had.
    last: usize,
}

impl Gatherer {
    pub(super) fn new(queue: Receiver<Box<dyn Job>>) -> Self {
        Self { queue, last: 0 }
    }

    /// The next group, after one that took so long: at least one job, wanted or not. `None` when nobody can submit
    /// any more.
    pub(super) fn next(&mut self, last_took: Duration) -> Option<Vec<Box<dyn Job>>> {
        let mut group = vec![self.queue.recv().ok()?];
        self.take_waiting(&mut group);
        if self.last > 1 && callers(&group) < self.last {
            self.wait_for_others(&mut group, (last_took / 2).clamp(PATIENCE.0, PATIENCE.1));
        }
        // Work that nobody waits for says nothing about who will be back.
        if callers(&group) > 0 {
            self.last = callers(&group);
        }
        Some(group)
    }

    fn take_waiting(&self, group: &mut Vec<Box<dyn Job>>) {
        while group.len() < LARGEST
            && let Ok(job) = self.queue.try_recv()
        {
            group.push(job);
        }
    }

    fn wait_for_others(&self, group: &mut Vec<Box<dyn Job>>, patience: Duration) {
        let deadline = Instant::now() + patience;
        while callers(group) < self.last
            && let Ok(job) = self.queue.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            group.push(job);
        }
    }
}

fn callers(group: &[Box<dyn Job>]) -> usize {
    group.iter().filter(|job| job.has_caller()).count()
}
