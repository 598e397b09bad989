//! What can be set, with the reference's names and defaults.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use crate::machine::Backoff;

/// How delayed delivery behaves. `Settings::default()` is meant to be right for most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How often a failed delivery is tried again before the message goes to the error queue: `n` retries are
    /// `n + 1` attempts. Outages of a destination or a store are not counted. Default 0, as in the reference.
    pub number_of_retries: u32,
    /// How long a message waits after a failed attempt: longer after each. Default 1 s doubling to 5 min.
    pub retry_backoff: Backoff,
    /// The store breaker trips when storing has failed for so long. Default 30 s, as in the reference.
    pub time_to_trigger_store_circuit_breaker: Duration,
    /// The fetch breaker trips when fetching has failed for so long. Default 30 s, as in the reference.
    pub time_to_trigger_fetch_circuit_breaker: Duration,
    /// The breaker of a destination trips when it has been unavailable for so long. Default 30 s, as in the
    /// reference (which has one for all destinations).
    pub time_to_trigger_dispatch_circuit_breaker: Duration,
    /// The recovery breaker trips when counting failures and moving to the error queue fail more often than
    /// this, on average over 30 s. Default 1, as in the reference.
    pub maximum_recovery_failures_per_second: NonZeroU32,
    /// How many messages are fetched at once. Default 500: more gains nothing on any store we measured.
    pub batch_size: NonZeroUsize,
    /// How many batches are on their way at once. Default 2: one is fetched while another is removed.
    pub concurrency: NonZeroUsize,
    /// How long one call to a dispatcher may take before its destination counts as unavailable. Default 30 s.
    pub send_time_limit: Duration,
    /// A destination that takes longer than this keeps its messages on their way, but no longer a place among
    /// the batches; until it answers nothing more is fetched for it. Default 1 s.
    pub slow_after: Duration,
    /// How long stopping waits for messages on their way; afterwards they are given back. Default 30 s.
    pub drain_time: Duration,
    /// No wait is longer than this, so that a lost wake-up costs no more. Default 60 s, at most an hour. Stores need not
    /// wake anybody for what is due more than a minute ahead: with a longer wait it may be late by the rest.
    pub longest_wait: Duration,
    /// What happens to messages that became due while nobody was there to send them.
    pub catch_up: CatchUp,
}

/// What happens to messages that became due while nobody was there to send them.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CatchUp {
    /// While the oldest due message is late by more than [`CatchUp::BEHIND`], send at most so many per second.
    /// Default: as fast as possible.
    pub rate: Option<NonZeroU32>,
    /// A message later than this is not sent: it goes to the error queue as expired. Default: never too late.
    pub maximum_lateness: Option<Duration>,
}

impl CatchUp {
    /// From this lateness on a backlog counts as one to be caught up with.
    pub const BEHIND: Duration = Duration::from_secs(10);

    /// At most `rate` messages per second while behind.
    #[must_use]
    pub fn rate(mut self, rate: NonZeroU32) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Messages later than `lateness` go to the error queue as expired.
    #[must_use]
    pub fn maximum_lateness(mut self, lateness: Duration) -> Self {
        self.maximum_lateness = Some(lateness);
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        const ONE: NonZeroU32 = NonZeroU32::MIN;
        Self {
            number_of_retries: 0,
            retry_backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(300)),
            time_to_trigger_store_circuit_breaker: Duration::from_secs(30),
            time_to_trigger_fetch_circuit_breaker: Duration::from_secs(30),
            time_to_trigger_dispatch_circuit_breaker: Duration::from_secs(30),
            maximum_recovery_failures_per_second: ONE,
            batch_size: NonZeroUsize::MIN.saturating_add(499),
            concurrency: NonZeroUsize::MIN.saturating_add(1),
            send_time_limit: Duration::from_secs(30),
            slow_after: Duration::from_secs(1),
            drain_time: Duration::from_secs(30),
            longest_wait: Duration::from_secs(60),
            catch_up: CatchUp::default(),
        }
    }
}
