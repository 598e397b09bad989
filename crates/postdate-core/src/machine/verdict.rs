//! What becomes of a message.

use std::time::Duration;

use super::Backoff;
use crate::{DispatchErrorKind, Reason};

/// The rules by which failures are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub number_of_retries: u32,
    pub retry_backoff: Backoff,
    pub maximum_lateness: Option<Duration>,
}

/// What becomes of a message after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was delivered.
    Remove,
    /// It failed and is tried again after this.
    Retry(Duration),
    /// It is not its fault: it goes back and nothing is counted.
    Hold,
    /// There is no hope for it.
    ErrorQueue(Reason),
}

impl Policy {
    /// Why a message should not even be tried: it came too late, or moving it to the error queue failed after
    /// its last attempt. `failures` is how many attempts were made so far.
    pub(crate) fn before(&self, failures: u32, lateness: Duration) -> Option<Reason> {
        if failures > self.number_of_retries {
            return Some(Reason::RetriesExhausted);
        }
        self.maximum_lateness.is_some_and(|maximum| lateness > maximum).then_some(Reason::Expired)
    }

    /// What becomes of a message after an attempt with this outcome, `failures` attempts having been made before.
    pub(crate) fn after(&self, failures: u32, outcome: Option<DispatchErrorKind>) -> Verdict {
        match outcome {
            None => Verdict::Remove,
            Some(DispatchErrorKind::Unavailable) => Verdict::Hold,
            Some(DispatchErrorKind::NoDestination) => Verdict::ErrorQueue(Reason::NoDestination),
            Some(DispatchErrorKind::Rejected) if failures >= self.number_of_retries => {
                Verdict::ErrorQueue(Reason::RetriesExhausted)
            }
            Some(DispatchErrorKind::Rejected) => {
                Verdict::Retry(self.retry_backoff.after(failures.saturating_add(1)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(number_of_retries: u32) -> Policy {
        let second = Duration::from_secs(1);
        Policy { number_of_retries, retry_backoff: Backoff::new(second, 60 * second), maximum_lateness: None }
    }

    #[test]
    fn n_retries_are_n_plus_one_attempts() {
        for retries in [0, 1, 7] {
            let policy = policy(retries);
            let attempts = (0..).take_while(|failures| {
                matches!(policy.after(*failures, Some(DispatchErrorKind::Rejected)), Verdict::Retry(_))
            });
            // The last attempt is the one that ends it.
            assert_eq!(u32::try_from(attempts.count()), Ok(retries));
        }
    }

    #[test]
    fn waits_between_attempts_grow() {
        let after = |failures| policy(9).after(failures, Some(DispatchErrorKind::Rejected));
        assert_eq!(after(0), Verdict::Retry(Duration::from_secs(1)));
        assert_eq!(after(2), Verdict::Retry(Duration::from_secs(4)));
    }

    #[test]
    fn an_outage_is_not_counted_and_a_missing_destination_is_hopeless() {
        assert_eq!(policy(0).after(0, Some(DispatchErrorKind::Unavailable)), Verdict::Hold);
        assert_eq!(
            policy(7).after(0, Some(DispatchErrorKind::NoDestination)),
            Verdict::ErrorQueue(Reason::NoDestination)
        );
        assert_eq!(policy(0).after(0, None), Verdict::Remove);
    }

    #[test]
    fn a_message_without_attempts_left_or_too_late_is_not_tried() {
        let late = Policy { maximum_lateness: Some(Duration::from_secs(60)), ..policy(1) };
        assert_eq!(late.before(1, Duration::from_secs(60)), None);
        assert_eq!(late.before(2, Duration::ZERO), Some(Reason::RetriesExhausted));
        assert_eq!(late.before(0, Duration::from_secs(61)), Some(Reason::Expired));
    }
}
