//! The clock of the store, which may leap.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use jiff::{SignedDuration, Timestamp};
use postdate_core::{Clock, TokioClock};

/// The clock of the store. It can be shifted for the time of one call, to plant a mistake.
#[derive(Clone, Debug)]
pub(crate) struct StoreClock {
    steady: TokioClock,
    leapt_seconds: Arc<AtomicI64>,
    shift_seconds: Arc<AtomicI64>,
    /// The latest time that it showed, in microseconds: with the planted fault of never going back.
    latest: Option<Arc<AtomicI64>>,
}

impl StoreClock {
    pub(crate) fn starting_at(start: Timestamp, never_goes_back: bool) -> Self {
        Self {
            steady: TokioClock::starting_at(start),
            leapt_seconds: Arc::default(),
            shift_seconds: Arc::default(),
            latest: never_goes_back.then(Arc::default),
        }
    }

    /// The time as it should be.
    pub(crate) fn right(&self) -> Timestamp {
        self.steady.now() + SignedDuration::from_secs(self.leapt_seconds.load(Relaxed))
    }

    pub(crate) fn leap(&self, seconds: i64) {
        self.leapt_seconds.fetch_add(seconds, Relaxed);
    }

    /// Makes a call during which this shows another time.
    pub(crate) fn shifted<T>(&self, seconds: i64, call: impl FnOnce() -> T) -> T {
        self.shift_seconds.store(seconds, Relaxed);
        let answer = call();
        self.shift_seconds.store(0, Relaxed);
        answer
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        let now = self.right() + SignedDuration::from_secs(self.shift_seconds.load(Relaxed));
        let Some(latest) = &self.latest else { return now };
        let micros = now.as_microsecond();
        let latest = latest.fetch_max(micros, Relaxed).max(micros);
        Timestamp::from_microsecond(latest).unwrap_or(now)
    }
}
