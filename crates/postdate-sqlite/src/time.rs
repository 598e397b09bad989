//! Instants as the file keeps them: microseconds since 1970.

use std::time::Duration;

use jiff::Timestamp;

/// The attempt time of a row that must never be fetched.
pub(crate) const NEVER: i64 = i64::MAX;

/// An instant rounded up, so that nothing is due early.
pub(crate) fn ceil_micros(instant: Timestamp) -> i64 {
    let micros = instant.as_nanosecond().div_euclid(1_000);
    let micros = micros + i128::from(instant.as_nanosecond().rem_euclid(1_000) != 0);
    i64::try_from(micros).expect("a timestamp is within 10,000 years: 58 bits of microseconds")
}

/// The time now, rounded down for the same reason.
pub(crate) fn floor_micros(now: Timestamp) -> i64 {
    i64::try_from(now.as_nanosecond().div_euclid(1_000))
        .expect("a timestamp is within 10,000 years: 58 bits of microseconds")
}

/// What was kept, as near as a timestamp comes to it: rounding up at the end of time leads beyond it.
pub(crate) fn from_micros(micros: i64) -> Timestamp {
    let end = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(micros).unwrap_or(end)
}

/// So long after `now`, or the end of time.
pub(crate) fn after(now: Timestamp, delay: Duration) -> i64 {
    ceil_micros(now.checked_add(delay).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_kept_to_the_microsecond_and_never_early() {
        for (nanos, kept) in [(1_000, 1), (1_001, 2), (0, 0), (-1, 0), (-1_000, -1), (-1_001, -1)] {
            assert_eq!(ceil_micros(Timestamp::from_nanosecond(nanos).unwrap()), kept, "{nanos}");
        }
        assert_eq!(floor_micros(Timestamp::from_nanosecond(1_999).unwrap()), 1);
        assert_eq!(floor_micros(Timestamp::from_nanosecond(-1).unwrap()), -1);
    }

    #[test]
    fn the_ends_of_time_come_back() {
        assert_eq!(from_micros(ceil_micros(Timestamp::MAX)), Timestamp::MAX);
        assert_eq!(from_micros(ceil_micros(Timestamp::MIN)), Timestamp::MIN);
        assert_eq!(from_micros(after(Timestamp::MAX, Duration::MAX)), Timestamp::MAX);
    }
}
