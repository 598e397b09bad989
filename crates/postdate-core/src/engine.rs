//! What the engines share: how they call, wait and stop, and what watches what they do.

mod calls;
mod context;
mod deadline;
mod moving;
mod send;
mod storing;

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinError, JoinSet},
};

pub(crate) use calls::Calls;
pub(crate) use context::{Context, Route, lateness};
pub(crate) use deadline::Deadline;
pub(crate) use moving::{Condemned, MOVES, Moved, in_transaction, is_admitted, report_moved, to_error_queue};
pub(crate) use send::{Broken, Outcome, chain, each, is_unavailable, text_of, together};
pub(crate) use storing::{Storing, Unstored};

use crate::{Operation, StoreError, StoreErrorKind};

/// The pause after a panic in a batch: whatever caused it is still there.
pub(crate) const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The time on the clock that moves with tokio's, also when that is paused.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// A clock elsewhere, as it goes on from the moment at which it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DistantClock {
    read: Timestamp,
    at: Instant,
}

impl DistantClock {
    /// A clock that shows `read` now or showed it a little earlier.
    pub(crate) fn showing(read: Timestamp) -> Self {
        Self { read, at: now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = now().saturating_duration_since(self.at);
        self.read.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

/// How long an engine that was told to stop waits for what is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drain {
    NotYet,
    /// For ever, if the drain time is.
    Until(Option<Instant>),
}

impl Drain {
    pub(crate) fn begin(&mut self, drain_time: Duration) {
        if matches!(self, Self::NotYet) {
            *self = Self::Until(now().checked_add(drain_time));
        }
    }
}

/// A call to a store or a queue. `None` when it is time to stop, which must not wait for a call that hangs.
pub(crate) async fn call<T>(
    stop: &mut watch::Receiver<bool>,
    operation: Operation,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Option<Result<T, StoreError>> {
    tokio::select! {
        biased;
        () = stopped(stop) => None,
        answer = guarded(operation, call) => Some(answer),
    }
}

/// A panic in a store or a queue is an error like any other.
pub(crate) async fn guarded<T>(
    operation: Operation,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|panic| {
        let who = match operation {
            Operation::Receive | Operation::Settle => "queue",
            _ => "store",
        };
        let detail = format!("it panicked: {}", text_of(&*panic));
        Err(StoreError::new(StoreErrorKind::Other, operation, who, detail))
    })
}

/// The word of a store or a queue that something changed. One that panics at that is not asked again during this
/// wait.
pub(crate) async fn changed(who: &str, changed: impl Future<Output = ()>) {
    if AssertUnwindSafe(changed).catch_unwind().await.is_err() {
        tracing::error!(who, "it panicked while it was waited for");
        std::future::pending().await
    }
}

/// What a loop hears from its batches. A batch says its last word before it ends; but it does both on another thread,
/// so that the end may be seen first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<N, E> {
    Note(N),
    End(E),
}

/// The next note or end; `waiting` keeps an end that was seen before its last word.
pub(crate) async fn hear<N, T: 'static>(
    notes: &mut mpsc::UnboundedReceiver<N>,
    batches: &mut JoinSet<T>,
    waiting: &mut Option<Result<(Id, T), JoinError>>,
) -> Heard<N, Result<(Id, T), JoinError>> {
    if waiting.is_none() {
        tokio::select! {
            biased;
            Some(note) = notes.recv() => return Heard::Note(note),
            Some(ended) = batches.join_next_with_id() => *waiting = Some(ended),
            else => return std::future::pending().await,
        }
    }
    match (notes.try_recv(), waiting.take()) {
        (Ok(note), ended) => {
            *waiting = ended;
            Heard::Note(note)
        }
        (Err(_), Some(ended)) => Heard::End(ended),
        (Err(_), None) => std::future::pending().await,
    }
}

pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means that nobody can want this to go on.
    let _ = stop.wait_for(|stop| *stop).await;
}

pub(crate) async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_word_of_a_batch_is_heard_before_its_end_though_the_end_was_seen_first() {
        let (sender, mut notes) = mpsc::unbounded_channel();
        let mut batches = JoinSet::new();
        batches.spawn(async {});
        let mut waiting = batches.join_next_with_id().await;
        sender.send("stored").unwrap();
        assert!(matches!(hear(&mut notes, &mut batches, &mut waiting).await, Heard::Note("stored")));
        assert!(matches!(hear(&mut notes, &mut batches, &mut waiting).await, Heard::End(Ok(_))));
        assert!(waiting.is_none());
    }

    #[tokio::test]
    async fn a_note_and_an_end_are_waited_for() {
        let (sender, mut notes) = mpsc::unbounded_channel();
        let (mut batches, mut waiting) = (JoinSet::new(), None);
        assert!(hear(&mut notes, &mut batches, &mut waiting).now_or_never().is_none());
        sender.send("slow").unwrap();
        batches.spawn(async {});
        assert!(matches!(hear(&mut notes, &mut batches, &mut waiting).await, Heard::Note("slow")));
        assert!(matches!(hear(&mut notes, &mut batches, &mut waiting).await, Heard::End(Ok(_))));
    }
}
