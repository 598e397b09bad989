//! Waiting for what must come, and no longer than that makes sense.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postdate_core::{DelayedMessageStore, Receiver};
use tokio::time::{Instant, sleep, timeout};

/// Polls for something until it is there, or until it is clear that it will not come.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    what: &'static str,
    begin: Instant,
    limit: Duration,
}

tokio::task_local! {
    /// How long a check waits for what has to come.
    pub(crate) static LIMIT: Duration;
}

/// The limit where nobody chose another one.
pub(crate) const USUAL_LIMIT: Duration = Duration::from_secs(15);

const STEP: Duration = Duration::from_millis(10);

impl Patience {
    pub(crate) fn with(what: &'static str) -> Self {
        Self { what, begin: Instant::now(), limit: limit() }
    }

    /// The same, for what comes so much later.
    pub(crate) fn longer_by(mut self, by: Option<Duration>) -> Self {
        self.limit += by.unwrap_or_default();
        self
    }

    /// Waits a moment before the next look.
    pub(crate) async fn a_moment(&self) -> Result<()> {
        ensure!(self.begin.elapsed() < self.limit, "waited {:?} in vain for {}", self.limit, self.what);
        sleep(STEP).await;
        Ok(())
    }
}

/// The limit of this check. What a check has spawned waits for the usual one.
pub(crate) fn limit() -> Duration {
    LIMIT.try_with(|limit| *limit).unwrap_or(USUAL_LIMIT)
}

/// Waits until the store wakes those who wait for earlier due times.
pub(crate) async fn woken_by(store: &dyn DelayedMessageStore) -> Result<()> {
    timeout(limit(), store.changed()).await.context("changed() of the store did not complete")
}

/// Takes the wake-ups that are left from before.
pub(crate) async fn quiet(store: &dyn DelayedMessageStore) {
    const MOMENT: Duration = Duration::from_millis(50);
    let end = Instant::now() + 4 * MOMENT;
    while Instant::now() < end && timeout(MOMENT, store.changed()).await.is_ok() {}
}

/// Waits until the receiver wakes those who wait for messages.
pub(crate) async fn woken_by_queue(receiver: &dyn Receiver) -> Result<()> {
    timeout(limit(), receiver.changed()).await.context("changed() of the receiver did not complete")
}
