//! A breaker that trips when failures are too many.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

/// Failures are counted over windows of this length, as in the reference.
const WINDOW: Duration = Duration::from_secs(30);

/// Trips when more than the permitted number of failures per second, on average, fall into one window. The
/// episode ends with the first window that stays within it.
#[derive(Debug)]
pub(crate) struct FailureRate {
    permitted: u64,
    window: Option<(Instant, u64)>,
    tripped: bool,
}

impl FailureRate {
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        Self { permitted: u64::from(per_second.get()) * WINDOW.as_secs(), window: None, tripped: false }
    }

    /// Something failed. Answers whether the breaker tripped just now.
    pub(crate) fn failure(&mut self, now: Instant) -> bool {
        let (start, count) = match self.window {
            Some((start, count)) if now.saturating_duration_since(start) < WINDOW => (start, count + 1),
            _ => (now, 1),
        };
        self.window = Some((start, count));
        let trips = count > self.permitted && !self.tripped;
        self.tripped |= trips;
        trips
    }

    /// Time has passed. Answers whether this closed a breaker that had tripped.
    pub(crate) fn pass(&mut self, now: Instant) -> bool {
        let Some((start, count)) = self.window else { return false };
        let age = now.saturating_duration_since(start);
        let calm = if count > self.permitted { age >= 2 * WINDOW } else { age >= WINDOW };
        calm && std::mem::take(&mut self.tripped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn it_trips_once_at_the_first_failure_above_the_permitted_average() {
        let (mut rate, start) = (FailureRate::new(NonZeroU32::MIN), Instant::now());
        let trips: Vec<usize> = (1..=60).filter(|_| rate.failure(start)).collect();
        assert_eq!(trips, [31]);
    }

    #[test]
    fn failures_at_the_permitted_rate_never_trip_it() {
        let (mut rate, start) = (FailureRate::new(NonZeroU32::MIN), Instant::now());
        assert!((0..300).all(|second| !rate.failure(start + second * SECOND)));
    }

    #[test]
    fn a_window_with_as_many_failures_as_permitted_is_calm_once_it_is_over() {
        let (mut rate, start) = (FailureRate::new(NonZeroU32::MIN), Instant::now());
        assert_eq!((0..31).filter(|_| rate.failure(start)).count(), 1);
        assert!((0..30).all(|_| !rate.failure(start + WINDOW)));
        assert!(!rate.pass(start + 59 * SECOND));
        assert!(rate.pass(start + 60 * SECOND));
    }

    #[test]
    fn a_calm_window_ends_the_episode() {
        let (mut rate, start) = (FailureRate::new(NonZeroU32::MIN), Instant::now());
        for _ in 0..40 {
            rate.failure(start);
        }
        assert!(!rate.pass(start + 59 * SECOND));
        assert!(rate.pass(start + 60 * SECOND));
        assert!(!rate.pass(start + 61 * SECOND), "only once");
        assert_eq!(
            (0..40).filter(|_| rate.failure(start + 70 * SECOND)).count(),
            1,
            "the next episode trips again"
        );
    }
}
