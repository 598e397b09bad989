//! Those who store while faults happen.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use postdate_core::{DelayedMessageStore, Due};

use crate::scene::{Scene, counting};

/// Clients that store one message after the other, each until it is acknowledged, until they are told to stop. The
/// messages stay in the store.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    stop: AtomicBool,
    failures: AtomicUsize,
}

impl Clients {
    pub(crate) async fn store(&self, scene: &Scene, store: &dyn DelayedMessageStore) {
        // An instant, so that storing again is recognised.
        let due = Due::At(Timestamp::now() + SignedDuration::from_hours(24));
        let client = || async {
            while !self.stop.load(Relaxed) {
                let message = [scene.message(due)];
                let dues = counting(&self.failures, async || store.store(&message).await).await;
                scene.note(&message, dues);
            }
        };
        join_all((0..4).map(|_| client())).await;
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// How many calls failed so far.
    pub(crate) fn failures(&self) -> usize {
        self.failures.load(Relaxed)
    }
}
