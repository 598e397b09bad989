//! So many per second and no more.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

/// Permits a steady rate, in portions of a tenth of a second's worth.
#[derive(Debug)]
pub(crate) struct RateLimit {
    interval: Duration,
    burst: u32,
    /// When everything permitted so far would have been sent at the steady rate.
    spent_until: Option<Instant>,
}

impl RateLimit {
    pub(crate) fn new(per_second: NonZeroU32) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self {
            interval: interval.max(Duration::from_nanos(1)),
            burst: (per_second.get() / 10).max(1),
            spent_until: None,
        }
    }

    /// How many may be sent now.
    pub(crate) fn permitted(&self, now: Instant) -> u32 {
        let owed = self.spent_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let owed = u32::try_from(owed.as_nanos().div_ceil(self.interval.as_nanos())).unwrap_or(u32::MAX);
        self.burst.saturating_sub(owed)
    }

    /// When something may be sent again.
    pub(crate) fn ready(&self, now: Instant) -> Instant {
        self.spent_until.map_or(now, |until| until.max(now))
    }

    /// So many were sent.
    pub(crate) fn spend(&mut self, now: Instant, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.spent_until = Some(self.ready(now) + self.interval.saturating_mul(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_permits_the_rate_and_one_portion() {
        let (mut limit, start) = (RateLimit::new(NonZeroU32::new(100).unwrap()), Instant::now());
        let (mut now, mut sent) = (start, 0);
        while now < start + Duration::from_secs(1) {
            let permitted = limit.permitted(now);
            assert!(permitted <= 10);
            limit.spend(now, permitted as usize);
            sent += permitted;
            now += Duration::from_millis(7);
        }
        assert!((100..=110).contains(&sent), "{sent}");
    }

    #[test]
    fn it_says_when_it_is_ready_again() {
        let (mut limit, start) = (RateLimit::new(NonZeroU32::MIN), Instant::now());
        assert_eq!(limit.permitted(start), 1);
        limit.spend(start, 1);
        assert_eq!(limit.permitted(start), 0);
        let ready = limit.ready(start);
        assert_eq!(ready, start + Duration::from_secs(1));
        assert_eq!(limit.permitted(ready), 1);
    }
}
