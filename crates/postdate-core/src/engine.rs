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
    sync::watch,
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

/// What ended next; first what ended before and waits to be heard of.
pub(crate) async fn next_ended<T: 'static>(
    waiting: &mut Option<Result<(Id, T), JoinError>>,
    tasks: &mut JoinSet<T>,
) -> Result<(Id, T), JoinError> {
    match waiting.take() {
        Some(ended) => ended,
        None => match tasks.join_next_with_id().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        },
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
