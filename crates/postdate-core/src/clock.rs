//! The time of this process.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;

/// Where a store without a server takes its time from.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that follows tokio's, so that a test under paused time moves both at once.
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: tokio::time::Instant,
    origin: Timestamp,
}

impl TokioClock {
    /// A clock that shows `origin` now.
    pub fn starting_at(origin: Timestamp) -> Self {
        Self { start: tokio::time::Instant::now(), origin }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.origin.saturating_add(self.start.elapsed()).unwrap_or(Timestamp::MAX)
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// `instant` rounded up to a multiple of `step`, so that nothing is due early in a store of that resolution.
pub fn round_up(instant: Timestamp, step: Duration) -> Timestamp {
    let Ok(step) = i128::try_from(step.as_nanos()) else { return Timestamp::MAX };
    if step <= 1 {
        return instant;
    }
    let over = instant.as_nanosecond().rem_euclid(step);
    if over == 0 {
        return instant;
    }
    Timestamp::from_nanosecond(instant.as_nanosecond() + step - over).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_is_never_early() {
        let at = |ns| Timestamp::from_nanosecond(ns).unwrap();
        let micro = Duration::from_micros(1);
        assert_eq!(round_up(at(1_000), micro), at(1_000));
        assert_eq!(round_up(at(1_001), micro), at(2_000));
        assert_eq!(round_up(at(-1_001), micro), at(-1_000));
        assert_eq!(round_up(Timestamp::MAX, micro), Timestamp::MAX);
        assert_eq!(round_up(at(7), Duration::ZERO), at(7));
    }
}
