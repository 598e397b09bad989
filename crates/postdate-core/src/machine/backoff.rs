//! Waits that double.

use std::time::Duration;

/// Waits that double from an initial one to a longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    initial: Duration,
    longest: Duration,
}

impl Backoff {
    /// `initial` after the first failure, twice as long after each further one, never more than `longest`.
    pub const fn new(initial: Duration, longest: Duration) -> Self {
        Self { initial, longest }
    }

    /// The wait after so many failures in a row.
    pub fn after(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.initial.saturating_mul(1 << doublings).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(60));
        let waits: Vec<u128> = (1..=13).map(|n| backoff.after(n).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000]);
        assert_eq!(backoff.after(0), backoff.after(1));
        assert_eq!(backoff.after(u32::MAX), Duration::from_secs(60));
    }
}
