//! Where in the order of attempts a drain goes on.
//!
//! What was removed stays in the index until no transaction in the whole database could see it any more. While some
//! backup or report is under way each search from the front walks past all of it: sixteen times the cost after
//! 100,000 messages. So a drain goes on behind what it fetched last, and returns to the front now and then for what
//! was committed late, given back, or freed by a crash.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::time::PgInstant;

/// A short run stays in strict order: it leaves too little behind to matter.
const SHORT: usize = 1_000;

/// The front is searched again after so many times of what that took, and within these limits: so it costs a few per
/// cent of a drain at most.
const REST: u32 = 32;
const REST_LIMITS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// A place in the order: the attempt time and the sequence number.
pub(crate) type Place = (PgInstant, i64);

/// Before everything.
pub(crate) const FRONT: Place = (PgInstant::BEFORE_ALL, 0);

/// Shared by all who fetch through one store.
#[derive(Debug, Default)]
pub(crate) struct Position(Mutex<Run>);

/// The full batches that came one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    fetched: usize,
    last: Option<Place>,
    /// When the front was searched last, and how long that took.
    front: Option<(Instant, Duration)>,
}

impl Position {
    /// Where to search from.
    pub(crate) fn next(&self, now: Instant) -> Place {
        let run = self.run();
        let is_rested = run.front.is_none_or(|(at, took)| {
            now.duration_since(at) >= (took * REST).clamp(REST_LIMITS.0, REST_LIMITS.1)
        });
        run.last.filter(|_| run.fetched >= SHORT && !is_rested).unwrap_or(FRONT)
    }

    /// A search from a place began then, took so long and found so many up to `last`.
    pub(crate) fn note(
        &self,
        from: Place,
        began: Instant,
        took: Duration,
        found: usize,
        last: Option<Place>,
    ) {
        let mut run = self.run();
        if from == FRONT {
            run.front = Some((began + took, took));
        }
        if from == FRONT && last.is_some() && last < run.last {
            // There is more of this before the place: from the front again, until that is worked off.
            run.front = None;
        }
        run.fetched += found;
        // Two may search at a time: what lies before the later of the two places was fetched by either.
        run.last = run.last.max(last);
    }

    /// Nothing more was found, or there is something before the place: begin anew.
    pub(crate) fn reset(&self) {
        *self.run() = Run::default();
    }

    /// Something was committed for this time.
    pub(crate) fn committed(&self, time: PgInstant) {
        if self.run().last.is_some_and(|(last, _)| time <= last) {
            self.reset();
        }
    }

    fn run(&self) -> MutexGuard<'_, Run> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn at(seconds: i64) -> Place {
        (PgInstant::from_micros(seconds), 1)
    }

    #[test]
    fn a_long_run_goes_on_behind_what_it_fetched_and_returns_to_the_front() {
        let (position, now) = (Position::default(), Instant::now());
        assert_eq!(position.next(now), FRONT);
        position.note(FRONT, now, MILLISECOND, 500, Some(at(1)));
        assert_eq!(position.next(now), FRONT, "a short run");
        position.note(FRONT, now, 2 * MILLISECOND, 500, Some(at(2)));
        assert_eq!(position.next(now + 60 * MILLISECOND), at(2));
        position.note(at(2), now + 60 * MILLISECOND, MILLISECOND, 500, Some(at(3)));
        assert_eq!(position.next(now + 65 * MILLISECOND), at(3));
        assert_eq!(position.next(now + 66 * MILLISECOND), FRONT, "2 ms of searching, 32 times 2 ms of rest");
    }

    #[test]
    fn the_rest_has_an_end_however_long_a_search_takes() {
        let (position, now) = (Position::default(), Instant::now());
        position.note(FRONT, now, Duration::from_secs(10), SHORT, Some(at(1)));
        let end = now + Duration::from_secs(10);
        assert_eq!(position.next(end + 999 * MILLISECOND), at(1));
        assert_eq!(position.next(end + 1_000 * MILLISECOND), FRONT);
    }

    #[test]
    fn what_is_committed_before_the_place_leads_back() {
        let (position, now) = (Position::default(), Instant::now());
        position.note(FRONT, now, MILLISECOND, SHORT, Some(at(5)));
        position.committed(PgInstant::from_micros(6));
        assert_eq!(position.next(now), at(5));
        position.committed(PgInstant::from_micros(5));
        assert_eq!(position.next(now), FRONT);
    }
}
