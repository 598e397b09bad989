//! Waking those who wait for the next due time, within the process.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use jiff::Timestamp;
use tokio::sync::Notify;

/// One handle's wish to be woken.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    /// When it looks again by itself: only what is free earlier concerns it.
    looks_again: Mutex<Option<Timestamp>>,
    earlier: Notify,
}

/// All who wait. Told under the lock of the messages, like [`Watcher::will_look_again`]: nothing falls between.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<Weak<Watcher>>);

impl Watcher {
    pub(crate) fn will_look_again(&self, at: Option<Timestamp>) {
        *self.looks_again.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    pub(crate) async fn changed(&self) {
        self.earlier.notified().await;
    }

    fn tell(&self, at: Timestamp) {
        let looks_again = *self.looks_again.lock().unwrap_or_else(PoisonError::into_inner);
        if looks_again.is_none_or(|then| at < then) {
            // Leaves a permit if nobody waits yet: a change between two calls is not missed.
            self.earlier.notify_one();
        }
    }
}

impl Watchers {
    pub(crate) fn join(&mut self) -> Arc<Watcher> {
        let watcher = Arc::default();
        self.0.push(Arc::downgrade(&watcher));
        watcher
    }

    /// Something is free to fetch from `at` on.
    pub(crate) fn announce(&mut self, at: Timestamp) {
        self.0.retain(|watcher| watcher.upgrade().inspect(|watcher| watcher.tell(at)).is_some());
    }
}
