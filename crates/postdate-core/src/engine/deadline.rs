//! When a claim ends, when to renew it, and until when to send under it.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::now;

/// Nothing is sent when a claim has less than this left, or less than a quarter of its term: another holder might
/// send it too.
const MARGIN: Duration = Duration::from_secs(1);

/// When a claim ends and when to renew it, shared by all that send under it.
#[derive(Debug)]
pub(crate) struct Deadline(Mutex<Term>);

#[derive(Clone, Copy, Debug)]
struct Term {
    sending_ends: Option<Instant>,
    renewal: Option<Instant>,
}

impl Term {
    /// Renewed at half-time: one failed try leaves time for another.
    fn until(ends: Option<Instant>) -> Self {
        let Some(ends) = ends else { return Self { sending_ends: None, renewal: None } };
        let left = ends.saturating_duration_since(now());
        let sending = left.saturating_sub(MARGIN.min(left / 4));
        Self { sending_ends: Some(now() + sending), renewal: Some(now() + left / 2) }
    }
}

impl Deadline {
    pub(crate) fn new(ends: Option<Instant>) -> Self {
        Self(Mutex::new(Term::until(ends)))
    }

    /// The claim was renewed.
    pub(crate) fn extend(&self, ends: Option<Instant>) {
        *self.term() = Term::until(ends);
    }

    /// Renewing failed; it is to be tried again after a pause.
    pub(crate) fn renew_after(&self, pause: Duration) {
        self.term().renewal = now().checked_add(pause);
    }

    /// The claim was lost: nothing more may be sent.
    pub(crate) fn lose(&self) {
        *self.term() = Term { sending_ends: Some(now()), renewal: None };
    }

    /// When to renew.
    pub(crate) fn renewal(&self) -> Option<Instant> {
        self.term().renewal
    }

    /// From when on nothing may be sent.
    pub(crate) fn sending_ends(&self) -> Option<Instant> {
        self.term().sending_ends
    }

    /// Whether enough is left of the claim to send under it.
    pub(crate) fn allows_sending(&self) -> bool {
        self.sending_ends().is_none_or(|ends| now() < ends)
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends_in(millis: u64) -> Option<Instant> {
        Some(now() + Duration::from_millis(millis))
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_renewed_at_half_time_and_nothing_is_sent_at_its_end() {
        let deadline = Deadline::new(ends_in(30_000));
        assert_eq!((deadline.renewal(), deadline.sending_ends()), (ends_in(15_000), ends_in(29_000)));
        deadline.extend(ends_in(2_000));
        assert_eq!((deadline.renewal(), deadline.sending_ends()), (ends_in(1_000), ends_in(1_500)));
        tokio::time::advance(Duration::from_millis(1_499)).await;
        assert!(deadline.allows_sending());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!deadline.allows_sending());
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_without_an_end_is_never_renewed() {
        let deadline = Deadline::new(None);
        assert_eq!((deadline.renewal(), deadline.sending_ends()), (None, None));
        assert!(deadline.allows_sending());
    }

    #[tokio::test(start_paused = true)]
    async fn under_a_lost_claim_nothing_is_sent_and_a_failed_renewal_is_tried_again() {
        let deadline = Deadline::new(ends_in(30_000));
        deadline.renew_after(Duration::from_secs(1));
        assert_eq!((deadline.renewal(), deadline.sending_ends()), (ends_in(1_000), ends_in(29_000)));
        deadline.lose();
        assert_eq!(deadline.renewal(), None);
        assert!(!deadline.allows_sending());
    }
}
