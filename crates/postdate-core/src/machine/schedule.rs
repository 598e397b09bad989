//! When to fetch, when to ask, when to wait.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use super::{Backoff, rate_limit::RateLimit};
use crate::{CatchUp, Settings};

/// The wait while others hold what is due.
const CONTENTION: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// Decides what the poller does next.
///
/// ```text
///           more may be due            nothing due
///   Fetch ------------------> Fetch   ------------> Ask --> Sleep --> Fetch or Ask
///     ^  contended: Sleep 50 ms .. 1 s                        |
///     +-------------------------------------- woken: Ask -----+
/// ```
#[derive(Debug)]
pub(crate) struct Schedule {
    batch_size: NonZeroUsize,
    concurrency: NonZeroUsize,
    longest_wait: Duration,
    limit: Option<RateLimit>,
    behind: bool,
    /// Batches that hold a place.
    in_flight: usize,
    /// Batches that wait for slow destinations and have given up their place.
    slow: usize,
    /// Messages to be fetched one by one, to find the one that harms the others.
    one_by_one: usize,
    contention: u32,
    plan: Plan,
    stopping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Fetch,
    Ask,
    Sleep { until: Instant, then: Then, wakeable: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Fetch,
    Ask,
}

/// Something happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Begin, or go on after a wait whose end had come.
    Go,
    /// The store changed.
    Woken,
    /// A fetch came back.
    Fetched { count: usize, full: bool, contended: bool, lateness: Duration },
    /// The store said how long until the next due time; `probe` is when a shut gate may be tried.
    NextDue { wait: Option<Duration>, probe: Option<Instant> },
    /// A call to the store failed.
    Failed { pause: Duration },
    /// A batch panicked.
    Panicked { was_slow: bool, pause: Duration },
    /// A batch waits for a slow destination.
    Slow,
    /// A batch ended. `disturbed` if it gave messages back or a gate changed; `harmful` is how many messages are
    /// to be fetched one by one now, because one of them broke the transaction of all.
    Ended { was_slow: bool, disturbed: bool, harmful: usize },
    /// Stop.
    Stop,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Fetch so many.
    Fetch { limit: NonZeroUsize },
    /// Ask for the next due time.
    Ask,
    /// Wait until then, or until something happens.
    Wait { until: Option<Instant> },
    /// Everything is done.
    Finished,
}

impl Schedule {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            batch_size: settings.batch_size,
            concurrency: settings.concurrency,
            longest_wait: settings.longest_wait,
            limit: settings.catch_up.rate.map(RateLimit::new),
            behind: true,
            in_flight: 0,
            slow: 0,
            one_by_one: 0,
            contention: 0,
            plan: Plan::Fetch,
            stopping: false,
        }
    }

    /// Takes note of what happened and says what to do next.
    pub(crate) fn step(&mut self, now: Instant, step: Step) -> Action {
        self.note(now, step);
        self.decide(now)
    }

    fn note(&mut self, now: Instant, step: Step) {
        match step {
            Step::Go => {}
            Step::Stop => self.stopping = true,
            Step::Woken => self.wake(),
            Step::Failed { pause } => self.sleep(now + pause, Then::Fetch, false),
            // What this poller holds itself is no contention.
            Step::Fetched { count: 0, contended: true, .. } if self.in_flight == 0 && self.slow == 0 => {
                self.back_off(now);
            }
            Step::Fetched { count: 0, .. } => self.plan = Plan::Ask,
            Step::Fetched { count, full, lateness, .. } => {
                self.in_flight += 1;
                self.one_by_one = self.one_by_one.saturating_sub(count);
                self.contention = 0;
                self.keep_rate(now, count, lateness);
                self.plan = if full { Plan::Fetch } else { Plan::Ask };
            }
            Step::NextDue { wait, probe } => self.plan_wait(now, wait, probe),
            Step::Slow => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.slow += 1;
            }
            Step::Panicked { was_slow, pause } => {
                self.free_place(was_slow);
                self.sleep(now + pause, Then::Fetch, false);
            }
            Step::Ended { was_slow, disturbed, harmful } => {
                self.one_by_one = self.one_by_one.max(harmful);
                self.free_place(was_slow);
                if disturbed {
                    self.wake();
                }
            }
        }
        if let Plan::Sleep { until, then, .. } = self.plan
            && until <= now
        {
            self.plan = match then {
                Then::Fetch => Plan::Fetch,
                Then::Ask => Plan::Ask,
            };
        }
    }

    fn free_place(&mut self, was_slow: bool) {
        let place = if was_slow { &mut self.slow } else { &mut self.in_flight };
        *place = place.saturating_sub(1);
    }

    /// Only a backlog spends of the catch-up rate: traffic on time owes nothing.
    fn keep_rate(&mut self, now: Instant, count: usize, lateness: Duration) {
        let Some(limit) = &mut self.limit else { return };
        if self.behind {
            limit.spend(now, count);
        }
        self.behind = lateness > CatchUp::BEHIND;
    }

    fn plan_wait(&mut self, now: Instant, wait: Option<Duration>, probe: Option<Instant>) {
        let probe = probe.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
        let due = wait.unwrap_or(Duration::MAX);
        if due.is_zero() && self.contention > 0 {
            // It is due and yet the last fetch found nothing: others hold it.
            return self.back_off(now);
        }
        // A fetch that finds nothing although something is due counts as contention; see above.
        self.contention = u32::from(due.is_zero());
        let wait = due.min(probe);
        if wait.is_zero() {
            self.plan = Plan::Fetch;
        } else if wait <= self.longest_wait {
            self.sleep(now + wait, Then::Fetch, true);
        } else {
            self.sleep(now + self.longest_wait, Then::Ask, true);
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.contention = self.contention.saturating_add(1);
        self.sleep(now + CONTENTION.after(self.contention), Then::Fetch, false);
    }

    fn sleep(&mut self, until: Instant, then: Then, wakeable: bool) {
        self.plan = Plan::Sleep { until, then, wakeable };
    }

    fn wake(&mut self) {
        if matches!(self.plan, Plan::Sleep { wakeable: true, .. }) {
            self.plan = Plan::Ask;
        }
    }

    fn decide(&self, now: Instant) -> Action {
        if self.stopping {
            let done = self.in_flight == 0 && self.slow == 0;
            return if done { Action::Finished } else { Action::Wait { until: None } };
        }
        match self.plan {
            Plan::Sleep { until, .. } => Action::Wait { until: Some(until) },
            Plan::Ask => Action::Ask,
            Plan::Fetch if self.in_flight >= self.concurrency.get() => Action::Wait { until: None },
            Plan::Fetch => self.fetch(now),
        }
    }

    fn fetch(&self, now: Instant) -> Action {
        let batch = if self.one_by_one > 0 { NonZeroUsize::MIN } else { self.batch_size };
        let Some(limit) = self.limit.as_ref().filter(|_| self.behind) else {
            return Action::Fetch { limit: batch };
        };
        match NonZeroUsize::new(limit.permitted(now) as usize) {
            Some(permitted) => Action::Fetch { limit: batch.min(permitted) },
            None => Action::Wait { until: Some(limit.ready(now).min(now + self.longest_wait)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule(change: impl FnOnce(&mut Settings)) -> (Schedule, Instant) {
        let mut settings = Settings { batch_size: NonZeroUsize::new(10).unwrap(), ..Settings::default() };
        change(&mut settings);
        (Schedule::new(&settings), Instant::now())
    }

    fn fetched(count: usize) -> Step {
        Step::Fetched { count, full: count == 10, contended: false, lateness: Duration::ZERO }
    }

    fn next_due(wait: Option<Duration>) -> Step {
        Step::NextDue { wait, probe: None }
    }

    fn fetch(limit: usize) -> Action {
        Action::Fetch { limit: NonZeroUsize::new(limit).unwrap() }
    }

    fn until(at: Instant) -> Action {
        Action::Wait { until: Some(at) }
    }

    #[test]
    fn full_batches_are_followed_by_more_up_to_the_concurrency() {
        let (mut schedule, now) = schedule(|_| {});
        assert_eq!(schedule.step(now, Step::Go), fetch(10));
        assert_eq!(schedule.step(now, fetched(10)), fetch(10));
        assert_eq!(schedule.step(now, fetched(10)), Action::Wait { until: None });
        assert_eq!(
            schedule.step(now, Step::Ended { was_slow: false, disturbed: false, harmful: 0 }),
            fetch(10)
        );
    }

    #[test]
    fn an_idle_poller_makes_one_call_per_longest_wait() {
        let (mut schedule, start) = schedule(|_| {});
        schedule.step(start, Step::Go);
        assert_eq!(schedule.step(start, fetched(0)), Action::Ask);
        let mut now = start;
        for _ in 0..10 {
            let end = now + 60 * SECOND;
            assert_eq!(schedule.step(now, next_due(None)), until(end));
            assert_eq!(schedule.step(end, Step::Go), Action::Ask);
            now = end;
        }
    }

    #[test]
    fn it_sleeps_until_the_next_due_time_and_fetches_then() {
        let (mut schedule, now) = schedule(|_| {});
        assert_eq!(schedule.step(now, next_due(Some(5 * SECOND))), until(now + 5 * SECOND));
        assert_eq!(schedule.step(now + 5 * SECOND, Step::Go), fetch(10));
    }

    #[test]
    fn any_delay_is_capped_and_asked_about_again() {
        for days in [1, 25, 50, 3_650, 1_000_000] {
            let (mut schedule, now) = schedule(|_| {});
            let wait = Some(Duration::from_secs(days * 86_400));
            assert_eq!(schedule.step(now, next_due(wait)), until(now + 60 * SECOND));
            assert_eq!(schedule.step(now + 60 * SECOND, Step::Go), Action::Ask);
        }
        let (mut schedule, now) = schedule(|_| {});
        assert_eq!(schedule.step(now, next_due(Some(Duration::MAX))), until(now + 60 * SECOND));
    }

    #[test]
    fn a_change_of_the_store_is_asked_about() {
        let (mut schedule, now) = schedule(|_| {});
        schedule.step(now, next_due(None));
        assert_eq!(schedule.step(now, Step::Woken), Action::Ask);
    }

    #[test]
    fn contention_backs_off_instead_of_spinning() {
        let (mut schedule, mut now) = schedule(|_| {});
        let mut calls = 0;
        let end = now + 10 * SECOND;
        let mut step = Step::Go;
        while now < end {
            match schedule.step(now, step) {
                // The peer holds the only due message: a fetch finds nothing, though it is due.
                Action::Fetch { .. } => (calls, step) = (calls + 1, fetched(0)),
                Action::Ask => (calls, step) = (calls + 1, next_due(Some(Duration::ZERO))),
                Action::Wait { until } => (now, step) = (until.unwrap(), Step::Go),
                Action::Finished => unreachable!(),
            }
        }
        assert!(calls <= 40, "{calls} calls in 10 s");
    }

    #[test]
    fn a_standby_looks_once_a_second() {
        let (mut schedule, now) = schedule(|_| {});
        let contended = Step::Fetched { count: 0, full: false, contended: true, lateness: Duration::ZERO };
        let waits: Vec<Action> = (0..6).map(|_| schedule.step(now, contended)).collect();
        let expected = [50, 100, 200, 400, 800, 1000].map(|ms| until(now + Duration::from_millis(ms)));
        assert_eq!(waits, expected);
        assert_eq!(
            schedule.step(now, Step::Woken),
            until(now + SECOND),
            "a wake-up does not cut the back-off"
        );
    }

    #[test]
    fn messages_that_it_holds_itself_are_no_contention() {
        let (mut schedule, now) = schedule(|_| {});
        schedule.step(now, fetched(1));
        let contended = Step::Fetched { count: 0, full: false, contended: true, lateness: Duration::ZERO };
        assert_eq!(schedule.step(now, contended), Action::Ask);
    }

    #[test]
    fn a_shut_gate_is_waited_for_but_one_that_may_be_probed_is_not() {
        let (mut schedule, now) = schedule(|_| {});
        let probe = Some(now + SECOND);
        assert_eq!(schedule.step(now, Step::NextDue { wait: Some(3 * SECOND), probe }), until(now + SECOND));
        assert_eq!(schedule.step(now + SECOND, Step::Go), fetch(10));
        assert_eq!(schedule.step(now + SECOND, fetched(0)), Action::Ask);
        let wait = Step::NextDue { wait: Some(2 * SECOND), probe: None };
        assert_eq!(schedule.step(now + SECOND, wait), until(now + 3 * SECOND));
    }

    #[test]
    fn a_failing_store_is_called_after_the_pause_only() {
        let (mut schedule, now) = schedule(|_| {});
        assert_eq!(schedule.step(now, Step::Failed { pause: SECOND }), until(now + SECOND));
        assert_eq!(schedule.step(now, Step::Woken), until(now + SECOND));
        assert_eq!(schedule.step(now + SECOND, Step::Go), fetch(10));
    }

    #[test]
    fn slow_batches_give_up_their_place_but_stopping_waits_for_them() {
        let (mut schedule, now) = schedule(|settings| settings.concurrency = NonZeroUsize::MIN);
        assert_eq!(schedule.step(now, fetched(10)), Action::Wait { until: None });
        assert_eq!(schedule.step(now, Step::Slow), fetch(10));
        assert_eq!(schedule.step(now, Step::Stop), Action::Wait { until: None });
        assert_eq!(
            schedule.step(now, Step::Ended { was_slow: true, disturbed: true, harmful: 0 }),
            Action::Finished
        );
    }

    #[test]
    fn given_back_messages_are_asked_about() {
        let (mut schedule, now) = schedule(|_| {});
        schedule.step(now, fetched(1));
        schedule.step(now, next_due(None));
        assert_eq!(
            schedule.step(now, Step::Ended { was_slow: false, disturbed: true, harmful: 0 }),
            Action::Ask
        );
    }

    #[test]
    fn a_backlog_is_worked_off_at_the_catch_up_rate_and_new_messages_are_not_held_up() {
        let (mut schedule, now) =
            schedule(|settings| settings.catch_up = CatchUp::default().rate(NonZeroU32::new(20).unwrap()));
        assert_eq!(schedule.step(now, Step::Go), fetch(2));
        let late = Step::Fetched { count: 2, full: true, contended: false, lateness: 60 * SECOND };
        assert_eq!(schedule.step(now, late), until(now + SECOND / 10));
        assert_eq!(
            schedule.step(now + SECOND / 10, Step::Ended { was_slow: false, disturbed: false, harmful: 0 }),
            fetch(2)
        );
        let on_time = Step::Fetched { count: 2, full: true, contended: false, lateness: CatchUp::BEHIND };
        assert_eq!(schedule.step(now + SECOND / 10, on_time), fetch(10));
    }

    #[test]
    fn traffic_on_time_owes_nothing_to_a_later_backlog() {
        let (mut schedule, mut now) =
            schedule(|settings| settings.catch_up = CatchUp::default().rate(NonZeroU32::new(20).unwrap()));
        let on_time = Step::Fetched { count: 10, full: true, contended: false, lateness: SECOND };
        for _ in 0..1_000 {
            schedule.step(now, on_time);
            schedule.step(now, Step::Ended { was_slow: false, disturbed: false, harmful: 0 });
            now += SECOND / 100;
        }
        let late = Step::Fetched { count: 10, full: true, contended: false, lateness: 60 * SECOND };
        schedule.step(now, late);
        assert_eq!(
            schedule.step(now, Step::Ended { was_slow: false, disturbed: false, harmful: 0 }),
            fetch(2)
        );
    }

    #[test]
    fn a_batch_that_panics_is_followed_by_a_pause() {
        let (mut schedule, now) = schedule(|_| {});
        schedule.step(now, fetched(10));
        let panicked = Step::Panicked { was_slow: false, pause: SECOND };
        assert_eq!(schedule.step(now, panicked), until(now + SECOND));
        assert_eq!(schedule.step(now, Step::Stop), Action::Finished);
    }

    #[test]
    fn a_harmful_batch_is_taken_apart() {
        let (mut schedule, now) = schedule(|_| {});
        assert_eq!(schedule.step(now, Step::Go), fetch(10));
        schedule.step(now, fetched(2));
        schedule.step(now, next_due(Some(Duration::ZERO)));
        let ended = Step::Ended { was_slow: false, disturbed: true, harmful: 2 };
        assert_eq!(schedule.step(now, ended), fetch(1));
        assert_eq!(schedule.step(now, fetched(1)), Action::Ask);
        schedule.step(now, next_due(Some(Duration::ZERO)));
        schedule.step(now, Step::Ended { was_slow: false, disturbed: false, harmful: 0 });
        assert_eq!(schedule.step(now, fetched(1)), Action::Ask);
        assert_eq!(schedule.step(now, next_due(Some(Duration::ZERO))), fetch(10));
    }
}
