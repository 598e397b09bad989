//! Waking those who wait for a change.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicU64, Ordering},
};

use jiff::Timestamp;
use tokio::sync::watch;

/// One handle's wish to be woken.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    looks_again: Mutex<Option<Timestamp>>,
    /// Counts the reasons to wake. Not a permit for one: all who wait have to look.
    reasons: watch::Sender<u64>,
    /// How many of them [`changed`](Self::changed) has told of.
    told: AtomicU64,
}

/// All who wait for changes in one place.
#[derive(Debug, Default)]
pub(super) struct Watchers(Vec<Weak<Watcher>>);

impl Watcher {
    /// Notes when the handle was told to look again: only what is free before that concerns it.
    pub(super) fn will_look_again(&self, at: Option<Timestamp>) {
        *self.looks_again.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    pub(super) fn looks_again(&self) -> Option<Timestamp> {
        *self.looks_again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when something became free to take before that, now or since the last call.
    pub(super) async fn changed(&self) {
        let told = self.told.load(Ordering::Acquire);
        let mut reasons = self.reasons.subscribe();
        // An error would mean that the sender is gone, and the sender is in `self`.
        if let Ok(count) = reasons.wait_for(|count| *count != told).await {
            self.told.fetch_max(*count, Ordering::AcqRel);
        }
    }

    /// Whoever begins to wait now has no reason to look: nothing is left.
    pub(super) fn forget_reasons(&self) {
        self.told.store(*self.reasons.borrow(), Ordering::Release);
    }

    pub(super) fn give_reason(&self) {
        self.reasons.send_modify(|count| *count += 1);
    }
}

impl Watchers {
    pub(super) fn join(&mut self) -> Arc<Watcher> {
        let watcher = Arc::default();
        self.0.push(Arc::downgrade(&watcher));
        watcher
    }

    /// Something is free to take from `at` on.
    pub(super) fn announce(&mut self, at: Timestamp) {
        self.0.retain(|watcher| {
            let Some(watcher) = watcher.upgrade() else { return false };
            if watcher.looks_again().is_none_or(|then| at < then) {
                watcher.give_reason();
            }
            true
        });
    }
}
