//! A breaker that trips when failures go on for too long.

use std::time::{Duration, Instant};

use super::Backoff;

/// The pause after a failure: short at first, so that a hiccup costs little.
const ARMED: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
/// The pause once tripped, as in the reference.
const TRIPPED: Duration = Duration::from_secs(10);

/// Watches one kind of call. A first failure arms it; it trips at a failure that comes at least the time to
/// trigger later with no success in between, so that one failure followed by silence never trips it. Every
/// attempt after a pause is the half-open probe: its success closes the breaker, its failure prolongs the pause.
#[derive(Debug)]
pub(crate) struct Breaker {
    time_to_trigger: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    Closed,
    Armed { since: Instant, failures: u32 },
    Tripped,
}

/// What a failure means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Try again after this.
    pub pause: Duration,
    /// Whether the breaker tripped just now.
    pub tripped: bool,
}

impl Breaker {
    pub(crate) fn new(time_to_trigger: Duration) -> Self {
        Self { time_to_trigger, state: State::Closed }
    }

    /// A call failed.
    pub(crate) fn failure(&mut self, now: Instant) -> Failed {
        let (since, failures) = match self.state {
            State::Tripped => return Failed { pause: TRIPPED, tripped: false },
            State::Closed => (now, 1),
            State::Armed { since, failures } => (since, failures.saturating_add(1)),
        };
        let tripped = failures > 1 && now.saturating_duration_since(since) >= self.time_to_trigger;
        self.state = if tripped { State::Tripped } else { State::Armed { since, failures } };
        Failed { pause: if tripped { TRIPPED } else { ARMED.after(failures) }, tripped }
    }

    /// A call succeeded. Answers whether this closed a breaker that had tripped.
    pub(crate) fn success(&mut self) -> bool {
        matches!(std::mem::replace(&mut self.state, State::Closed), State::Tripped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> (Breaker, Instant) {
        (Breaker::new(30 * SECOND), Instant::now())
    }

    #[test]
    fn it_trips_once_when_failures_last_for_the_time_to_trigger() {
        let (mut breaker, start) = breaker();
        for second in 0..30 {
            assert!(!breaker.failure(start + second * SECOND).tripped, "at {second} s");
        }
        assert_eq!(breaker.failure(start + 30 * SECOND), Failed { pause: TRIPPED, tripped: true });
        assert_eq!(breaker.failure(start + 31 * SECOND), Failed { pause: TRIPPED, tripped: false });
    }

    #[test]
    fn pauses_grow_while_it_is_armed() {
        let (mut breaker, start) = breaker();
        let pauses: Vec<u128> = (0..7).map(|_| breaker.failure(start).pause.as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn a_success_closes_it_and_starts_anew() {
        let (mut breaker, start) = breaker();
        breaker.failure(start);
        assert!(!breaker.success(), "it had not tripped");
        assert!(!breaker.failure(start + 40 * SECOND).tripped, "the old failure is forgotten");
        assert!(breaker.failure(start + 70 * SECOND).tripped);
        assert!(breaker.success(), "it had tripped");
        assert!(!breaker.success());
    }

    #[test]
    fn one_failure_and_silence_never_trip_it() {
        let mut breaker = Breaker::new(Duration::ZERO);
        assert!(!breaker.failure(Instant::now()).tripped);
    }
}
