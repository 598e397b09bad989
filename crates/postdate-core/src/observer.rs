//! What is derived from the event stream: log lines and figures.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{BreakerName, CriticalError, Event, Observer};

/// What the user wants to be done when a breaker trips.
pub(crate) type CriticalErrorAction = Arc<dyn Fn(&CriticalError) + Send + Sync>;

/// What a call did to a breaker.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It tripped, at this error.
    Tripped(BreakerName, String),
    /// It had tripped and closed.
    Closed(BreakerName),
}

/// Hands events to everybody who wants them, and critical errors to the user's action.
#[derive(Clone)]
pub(crate) struct Reporter {
    observers: Arc<[Arc<dyn Observer>]>,
    critical: Option<CriticalErrorAction>,
    tripped: Arc<Mutex<BTreeSet<BreakerName>>>,
}

impl Reporter {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>, critical: Option<CriticalErrorAction>) -> Self {
        Self { observers: observers.into(), critical, tripped: Arc::default() }
    }

    /// Tells the observers. One that panics does not take a message down with it.
    pub(crate) fn report(&self, event: Event<'_>) {
        for observer in &*self.observers {
            if catch_unwind(AssertUnwindSafe(|| observer.observe(&event))).is_err() {
                tracing::error!(?observer, "an observer panicked");
            }
        }
    }

    /// Calls a breaker. What that changed is noted under the breaker's own lock, so that what is noted last is true,
    /// and told after it.
    pub(crate) fn watch<B, T>(&self, breaker: &Mutex<B>, call: impl FnOnce(&mut B) -> (T, Vec<Turn>)) -> T {
        let (answer, turns) = {
            let mut breaker = breaker.lock().unwrap_or_else(PoisonError::into_inner);
            let (answer, turns) = call(&mut breaker);
            turns.iter().for_each(|turn| self.note(turn));
            (answer, turns)
        };
        turns.into_iter().for_each(|turn| self.tell(turn));
        answer
    }

    /// Something broke that has no breaker of its own.
    pub(crate) fn trip(&self, breaker: BreakerName, error: String) {
        let turn = Turn::Tripped(breaker, error);
        self.note(&turn);
        self.tell(turn);
    }

    fn note(&self, turn: &Turn) {
        match turn {
            Turn::Tripped(breaker, _) => self.open().insert(breaker.clone()),
            Turn::Closed(breaker) => self.open().remove(breaker),
        };
    }

    fn tell(&self, turn: Turn) {
        let (breaker, error) = match turn {
            Turn::Closed(breaker) => return self.report(Event::BreakerClosed { breaker: &breaker }),
            Turn::Tripped(breaker, error) => (breaker, error),
        };
        self.report(Event::BreakerTripped { breaker: &breaker, error: &error });
        let critical = CriticalError { breaker, error };
        if let Some(action) = &self.critical
            && catch_unwind(AssertUnwindSafe(|| action(&critical))).is_err()
        {
            tracing::error!("the critical-error action panicked");
        }
    }

    /// The breakers that are tripped now.
    pub(crate) fn tripped_now(&self) -> Vec<BreakerName> {
        self.open().iter().cloned().collect()
    }

    fn open(&self) -> std::sync::MutexGuard<'_, BTreeSet<BreakerName>> {
        self.tripped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reporter").field("observers", &self.observers).finish_non_exhaustive()
    }
}

/// Writes events to the `tracing` log: trouble as warnings and errors, the rest as debug and trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

impl Observer for TracingObserver {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Started { endpoint, mode } => tracing::info!(%endpoint, %mode, "delayed delivery started"),
            Event::Stopped { cut_off } => tracing::info!(cut_off, "delayed delivery stopped"),
            Event::PumpStarted { endpoint } => tracing::info!(%endpoint, "pump started"),
            Event::PumpStopped { cut_off } => tracing::info!(cut_off, "pump stopped"),
            Event::Received { count } => tracing::trace!(count, "received"),
            Event::Stored { id, destination, due } => tracing::trace!(%id, %destination, %due, "stored"),
            Event::Fetched { count, lateness } => tracing::trace!(count, ?lateness, "fetched"),
            Event::Dispatched { id, destination, lateness, attempts } => {
                tracing::trace!(%id, %destination, ?lateness, attempts, "dispatched");
            }
            Event::AttemptFailed { id, destination, attempts, retry_after, error } => {
                tracing::debug!(%id, %destination, attempts, ?retry_after, error, "attempt failed");
            }
            Event::Held { destination, count, retry_after, error } => {
                tracing::debug!(%destination, count, ?retry_after, error, "destination unavailable");
            }
            Event::MovedToErrorQueue { id, destination, attempts, reason, error } => {
                tracing::warn!(%id, %destination, attempts, reason = reason.as_str(), error, "moved to error queue");
            }
            Event::RecoveryFailed { id, error } => tracing::warn!(%id, error, "recovery failed"),
            Event::PossibleDuplicate { id, destination } => {
                tracing::warn!(%id, %destination, "possibly delivered twice");
            }
            Event::StoreFailed { retry_after, error } => {
                tracing::debug!(?retry_after, %error, "store or queue failed")
            }
            Event::Cancelled { id } => tracing::debug!(%id, "cancelled"),
            Event::Rescheduled { id, due } => tracing::debug!(%id, %due, "rescheduled"),
            Event::BreakerTripped { breaker, error } => tracing::error!(%breaker, error, "breaker tripped"),
            Event::BreakerClosed { breaker } => tracing::info!(%breaker, "breaker closed"),
        }
    }
}

/// Upper bounds of the lateness histogram, in seconds: those of the OpenTelemetry messaging conventions, with
/// coarser ones added for backlogs.
pub const LATENESS_BUCKETS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 60.0, 3600.0];

/// Counts events.
#[derive(Debug, Default)]
pub struct Metrics {
    received: AtomicU64,
    stored: AtomicU64,
    dispatched: AtomicU64,
    failed_attempts: AtomicU64,
    moved_to_error_queue: AtomicU64,
    expired: AtomicU64,
    recovery_failures: AtomicU64,
    possible_duplicates: AtomicU64,
    cancelled: AtomicU64,
    rescheduled: AtomicU64,
    lateness_micros: AtomicU64,
    lateness: [AtomicU64; LATENESS_BUCKETS.len() + 1],
    tripped: Mutex<BTreeSet<BreakerName>>,
}

/// The figures of [`Metrics`] at one moment. All are counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricsSnapshot {
    /// Messages that pumps took from queues, each as often as it came.
    pub received: u64,
    /// Messages stored.
    pub stored: u64,
    /// Messages delivered.
    pub dispatched: u64,
    /// Attempts that failed and were repeated.
    pub failed_attempts: u64,
    /// Messages moved to the error queue, expired ones included.
    pub moved_to_error_queue: u64,
    /// Messages moved to the error queue because they were too late.
    pub expired: u64,
    /// Failed attempts to count a failure or to move a message to the error queue.
    pub recovery_failures: u64,
    /// Messages that may have been delivered twice.
    pub possible_duplicates: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Messages rescheduled.
    pub rescheduled: u64,
    /// All lateness together.
    pub total_lateness: Duration,
    /// How many deliveries were at most as late as each of [`LATENESS_BUCKETS`] and later than the one before;
    /// the last count is of those later than all.
    pub lateness: [u64; LATENESS_BUCKETS.len() + 1],
    /// Breakers that are tripped now.
    pub tripped: Vec<BreakerName>,
}

impl Metrics {
    /// The figures now.
    pub fn snapshot(&self) -> MetricsSnapshot {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        MetricsSnapshot {
            received: read(&self.received),
            stored: read(&self.stored),
            dispatched: read(&self.dispatched),
            failed_attempts: read(&self.failed_attempts),
            moved_to_error_queue: read(&self.moved_to_error_queue),
            expired: read(&self.expired),
            recovery_failures: read(&self.recovery_failures),
            possible_duplicates: read(&self.possible_duplicates),
            cancelled: read(&self.cancelled),
            rescheduled: read(&self.rescheduled),
            total_lateness: Duration::from_micros(read(&self.lateness_micros)),
            lateness: std::array::from_fn(|i| read(&self.lateness[i])),
            tripped: self.tripped.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect(),
        }
    }

    fn late(&self, lateness: Duration) {
        let micros = u64::try_from(lateness.as_micros()).unwrap_or(u64::MAX);
        self.lateness_micros.fetch_add(micros, Relaxed);
        let bucket = LATENESS_BUCKETS.partition_point(|bound| *bound < lateness.as_secs_f64());
        self.lateness[bucket].fetch_add(1, Relaxed);
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        let counter = match event {
            Event::Received { count } => {
                self.received.fetch_add(*count as u64, Relaxed);
                return;
            }
            Event::Stored { .. } => &self.stored,
            Event::Dispatched { lateness, .. } => {
                self.late(*lateness);
                &self.dispatched
            }
            Event::AttemptFailed { .. } => &self.failed_attempts,
            Event::MovedToErrorQueue { reason, .. } => {
                self.expired.fetch_add(u64::from(*reason == crate::Reason::Expired), Relaxed);
                &self.moved_to_error_queue
            }
            Event::RecoveryFailed { .. } => &self.recovery_failures,
            Event::PossibleDuplicate { .. } => &self.possible_duplicates,
            Event::Cancelled { .. } => &self.cancelled,
            Event::Rescheduled { .. } => &self.rescheduled,
            Event::BreakerTripped { breaker, .. } => {
                self.tripped.lock().unwrap_or_else(PoisonError::into_inner).insert((*breaker).clone());
                return;
            }
            Event::BreakerClosed { breaker } => {
                self.tripped.lock().unwrap_or_else(PoisonError::into_inner).remove(*breaker);
                return;
            }
            Event::Started { .. }
            | Event::Stopped { .. }
            | Event::PumpStarted { .. }
            | Event::PumpStopped { .. }
            | Event::Fetched { .. }
            | Event::Held { .. }
            | Event::StoreFailed { .. } => return,
        };
        counter.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, MessageId};

    #[test]
    fn deliveries_are_counted_by_lateness() {
        let metrics = Metrics::default();
        let (id, destination) = (MessageId::generate(), Address::new("q").unwrap());
        for ms in [0, 5, 6, 20, 4_000_000] {
            let lateness = Duration::from_millis(ms);
            metrics.observe(&Event::Dispatched { id: &id, destination: &destination, lateness, attempts: 1 });
        }
        let snapshot = metrics.snapshot();
        assert_eq!(snapshot.dispatched, 5);
        assert_eq!(snapshot.lateness[..4], [2, 1, 1, 0]);
        assert_eq!(snapshot.lateness[LATENESS_BUCKETS.len()], 1);
        assert_eq!(snapshot.total_lateness, Duration::from_millis(4_000_031));
    }

    #[derive(Debug)]
    struct Panics;

    impl Observer for Panics {
        fn observe(&self, _: &Event<'_>) {
            panic!("planted");
        }
    }

    #[test]
    fn a_panicking_observer_does_not_keep_others_from_hearing() {
        let metrics = Arc::new(Metrics::default());
        let reporter = Reporter::new(vec![Arc::new(Panics), metrics.clone()], None);
        reporter.report(Event::Cancelled { id: &MessageId::generate() });
        assert_eq!(metrics.snapshot().cancelled, 1);
    }
}
