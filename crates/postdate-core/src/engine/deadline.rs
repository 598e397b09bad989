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
