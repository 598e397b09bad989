//! Deciding what shares a statement.

use std::time::{Duration, Instant};

use super::{Job, Storer};

/// No statement holds more: those behind should not wait for ever.
const MOST_MESSAGES: usize = 1_000;
const MOST_BYTES: usize = 4 << 20;

/// How long to wait, at most, for callers of the last group who come straight back with more. It is less than the last
/// group took, or waiting would cost more than it saves.
const PATIENCE: Duration = Duration::from_micros(500);

/// The group before.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) callers: usize,
    pub(super) took: Duration,
}

/// The next group; `None` when nobody waits any more, and then whoever comes has to begin anew.
///
/// Callers in a loop come back a moment after they were answered. Without patience the first of them would get
/// a commit of its own, and the others the next: groups of one and of seven in turn, at twice the cost. One that is
/// alone is never made to wait.
pub(super) async fn next(storer: &Storer, last: &Last) -> Option<Vec<Job>> {
    if last.callers > 1 {
        let end = Instant::now() + (last.took / 2).min(PATIENCE);
        // The timers of the runtime are too coarse for this. Others get the processor meanwhile.
        while storer.state().waiting.len() < last.callers && Instant::now() < end {
            tokio::task::yield_now().await;
        }
    }
    let mut state = storer.state();
    if state.waiting.is_empty() {
        state.is_running = false;
        return None;
    }
    let (mut messages, mut bytes) = (0, 0);
    let fits = state.waiting.iter().take_while(|job| {
        let is_first = messages == 0;
        messages += job.messages.len();
        bytes += job.bytes;
        is_first || (messages <= MOST_MESSAGES && bytes <= MOST_BYTES)
    });
    let count = fits.count();
    Some(state.waiting.drain(..count).collect())
}
