//! What the workers of this process delivered. One process does one task, and not all peers let handlers have state.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use chrono::Utc;

use crate::message::Message;

static COUNT: AtomicU64 = AtomicU64::new(0);
static TIMED: AtomicBool = AtomicBool::new(false);
static LATENESS: Mutex<Vec<f64>> = Mutex::new(Vec::new());

pub(crate) fn deliver(message: &Message) {
    if TIMED.load(Relaxed) {
        let late = (Utc::now() - message.due()).as_seconds_f64() * 1e3;
        LATENESS.lock().unwrap_or_else(PoisonError::into_inner).push(late);
    }
    COUNT.fetch_add(1, Relaxed);
}

pub(crate) fn count() -> u64 {
    COUNT.load(Relaxed)
}

/// From now on it is noted how late each is.
pub(crate) fn time() {
    TIMED.store(true, Relaxed);
}

/// How many milliseconds late each was that came; below zero if it was early.
pub(crate) fn lateness() -> Vec<f64> {
    LATENESS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
