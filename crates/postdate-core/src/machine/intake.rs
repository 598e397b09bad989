//! When a pump receives and when it waits.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use super::Backoff;
use crate::Settings;

/// The wait where one wake-up after the other is for nothing: others were quicker, or the queue cannot tell.
const IN_VAIN: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// So many messages may wait for the error queue, or a batch if that is more, before a pump receives no others.
const MOST_WAITING: usize = 500;

/// Decides what a pump does next.
///
/// ```text
///            messages came                       it is stored
///   Receive --------------> wait for the batch --------------> Receive
///     ^  none: Sleep, at most the longest wait     store away: Sleep, then probe it
///     +--------------------------- woken ---------+
/// ```
///
/// One batch is stored at a time, so that the order of the queue is kept. Batches that wait for the error queue hold
/// up nobody, until they hold [`MOST_WAITING`] messages.
#[derive(Debug)]
pub(crate) struct Intake {
    batch_size: NonZeroUsize,
    longest_wait: Duration,
    /// Whether a batch is being stored.
    storing: bool,
    /// Batches that wait for the error queue.
    waiting_batches: usize,
    /// Messages in them.
    waiting: usize,
    /// The store was away: so many find out whether it is back.
    probe: Option<NonZeroUsize>,
    woken: bool,
    woken_in_vain: u32,
    plan: Plan,
    stopping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Receive,
    Sleep { until: Instant, wakeable: bool },
}

/// Something happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Begin, or go on after a wait whose end had come.
    Go,
    /// The queue changed.
    Woken,
    /// So many messages were received.
    Received { count: usize },
    /// Receiving failed.
    Failed { pause: Duration },
    /// The batch was stored as far as it could be; so many of its messages wait for the error queue.
    Stored { away: Option<Away>, waiting: usize },
    /// A batch ended. `waited` if it had been [`Stored`](Self::Stored), with what it said then.
    Ended { waited: Option<usize> },
    /// A batch panicked.
    Panicked { waited: Option<usize>, pause: Duration },
    /// Stop.
    Stop,
}

/// The store did not take messages, by no fault of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    /// Leave it alone for so long.
    pub pause: Duration,
    /// Receive so many then to find out whether it is back.
    pub probe: NonZeroUsize,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Receive so many.
    Receive { limit: NonZeroUsize },
    /// Wait until then, or until something happens; to changes of the queue only those that are wakeable listen.
    Wait { until: Option<Instant>, wakeable: bool },
    /// Everything is done.
    Finished,
}

impl Intake {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            batch_size: settings.batch_size,
            longest_wait: settings.longest_wait,
            storing: false,
            waiting_batches: 0,
            waiting: 0,
            probe: None,
            woken: false,
            woken_in_vain: 0,
            plan: Plan::Receive,
            stopping: false,
        }
    }

    /// Takes note of what happened and says what to do next.
    pub(crate) fn step(&mut self, now: Instant, event: Event) -> Action {
        self.note(now, event);
        if matches!(self.plan, Plan::Sleep { until, .. } if until <= now) {
            self.plan = Plan::Receive;
        }
        self.decide()
    }

    fn note(&mut self, now: Instant, event: Event) {
        match event {
            Event::Go => {}
            Event::Stop => self.stopping = true,
            Event::Woken => {
                if matches!(self.plan, Plan::Sleep { wakeable: true, .. }) {
                    self.plan = Plan::Receive;
                    self.woken = true;
                }
            }
            Event::Received { count: 0 } => self.found_nothing(now),
            Event::Received { .. } => {
                self.storing = true;
                self.woken = false;
                self.woken_in_vain = 0;
                self.plan = Plan::Receive;
            }
            Event::Failed { pause } => self.sleep(now + pause, false),
            Event::Stored { away, waiting } => {
                self.storing = false;
                self.waiting_batches += 1;
                self.waiting += waiting;
                self.probe = away.map(|away| away.probe);
                if let Some(Away { pause, .. }) = away {
                    self.sleep(now + pause, false);
                }
            }
            Event::Ended { waited } => self.ended(waited),
            Event::Panicked { waited, pause } => {
                self.ended(waited);
                self.sleep(now + pause, false);
            }
        }
    }

    fn found_nothing(&mut self, now: Instant) {
        self.woken_in_vain =
            if self.woken { self.woken_in_vain.saturating_add(1) } else { self.woken_in_vain };
        if std::mem::take(&mut self.woken) && self.woken_in_vain > 1 {
            self.sleep(now + IN_VAIN.after(self.woken_in_vain - 1), false);
        } else {
            self.sleep(now + self.longest_wait, true);
        }
    }

    fn ended(&mut self, waited: Option<usize>) {
        match waited {
            Some(messages) => {
                self.waiting_batches = self.waiting_batches.saturating_sub(1);
                self.waiting = self.waiting.saturating_sub(messages);
            }
            None => self.storing = false,
        }
    }

    fn sleep(&mut self, until: Instant, wakeable: bool) {
        self.plan = Plan::Sleep { until, wakeable };
    }

    fn decide(&self) -> Action {
        const SOMETHING_ENDS: Action = Action::Wait { until: None, wakeable: false };
        if self.stopping {
            let done = !self.storing && self.waiting_batches == 0;
            return if done { Action::Finished } else { SOMETHING_ENDS };
        }
        let full = self.waiting >= self.batch_size.get().max(MOST_WAITING);
        match self.plan {
            Plan::Sleep { until, wakeable } => Action::Wait { until: Some(until), wakeable },
            Plan::Receive if self.storing || full => SOMETHING_ENDS,
            Plan::Receive => Action::Receive { limit: self.probe.unwrap_or(self.batch_size) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const STORED: Event = Event::Stored { away: None, waiting: 0 };
    const ENDED: Event = Event::Ended { waited: Some(0) };
    const SOMETHING_ENDS: Action = Action::Wait { until: None, wakeable: false };

    fn intake() -> (Intake, Instant) {
        let settings = Settings { batch_size: NonZeroUsize::new(10).unwrap(), ..Settings::default() };
        (Intake::new(&settings), Instant::now())
    }

    fn receive(limit: usize) -> Action {
        Action::Receive { limit: NonZeroUsize::new(limit).unwrap() }
    }

    fn deaf(until: Instant) -> Action {
        Action::Wait { until: Some(until), wakeable: false }
    }

    fn idle(until: Instant) -> Action {
        Action::Wait { until: Some(until), wakeable: true }
    }

    #[test]
    fn one_batch_is_stored_after_the_other() {
        let (mut intake, now) = intake();
        assert_eq!(intake.step(now, Event::Go), receive(10));
        assert_eq!(intake.step(now, Event::Received { count: 10 }), SOMETHING_ENDS);
        assert_eq!(intake.step(now, STORED), receive(10));
        assert_eq!(intake.step(now, ENDED), receive(10));
        assert_eq!(intake.step(now, Event::Received { count: 0 }), idle(now + 60 * SECOND));
    }

    #[test]
    fn an_idle_pump_receives_once_per_longest_wait() {
        let (mut intake, mut now) = intake();
        intake.step(now, Event::Go);
        for _ in 0..10 {
            assert_eq!(intake.step(now, Event::Received { count: 0 }), idle(now + 60 * SECOND));
            now += 60 * SECOND;
            assert_eq!(intake.step(now, Event::Go), receive(10));
        }
    }

    #[test]
    fn it_is_woken_by_the_queue_and_backs_off_where_that_is_for_nothing() {
        let (mut intake, mut now) = intake();
        intake.step(now, Event::Received { count: 0 });
        let (end, mut receives, mut event) = (now + 10 * SECOND, 0, Event::Woken);
        while now < end {
            match intake.step(now, event) {
                Action::Receive { .. } => (receives, event) = (receives + 1, Event::Received { count: 0 }),
                Action::Wait { wakeable: true, .. } => event = Event::Woken,
                Action::Wait { until, .. } => (now, event) = (until.unwrap(), Event::Go),
                Action::Finished => unreachable!(),
            }
        }
        assert!((10..40).contains(&receives), "{receives} in 10 s");
        assert_eq!(intake.step(now, Event::Received { count: 1 }), SOMETHING_ENDS);
        intake.step(now, STORED);
        intake.step(now, Event::Received { count: 0 });
        assert_eq!(intake.step(now, Event::Woken), receive(10), "a find is forgiven");
        assert_eq!(intake.step(now, Event::Received { count: 0 }), idle(now + 60 * SECOND));
    }

    #[test]
    fn a_store_that_is_away_is_left_alone_and_then_probed_by_one_message() {
        let (mut intake, now) = intake();
        let away = |probe| Event::Stored {
            away: Some(Away { pause: SECOND, probe: NonZeroUsize::new(probe).unwrap() }),
            waiting: 0,
        };
        intake.step(now, Event::Received { count: 10 });
        assert_eq!(intake.step(now, away(1)), deaf(now + SECOND));
        assert_eq!(intake.step(now, Event::Woken), deaf(now + SECOND), "what was given back wakes nobody");
        let now = now + SECOND;
        assert_eq!(intake.step(now, Event::Go), receive(1));
        intake.step(now, Event::Received { count: 1 });
        assert_eq!(intake.step(now, away(1)), deaf(now + SECOND));
        let now = now + SECOND;
        assert_eq!(intake.step(now, Event::Go), receive(1));
        intake.step(now, Event::Received { count: 1 });
        assert_eq!(intake.step(now, STORED), receive(10), "it is back");
        intake.step(now, Event::Received { count: 10 });
        assert_eq!(intake.step(now, away(11)), deaf(now + SECOND));
        assert_eq!(intake.step(now + SECOND, Event::Go), receive(11), "another must speak for the store");
    }

    #[test]
    fn a_queue_that_is_away_is_left_alone() {
        let (mut intake, now) = intake();
        assert_eq!(intake.step(now, Event::Failed { pause: SECOND }), deaf(now + SECOND));
        assert_eq!(intake.step(now, Event::Woken), deaf(now + SECOND));
        assert_eq!(intake.step(now + SECOND, Event::Go), receive(10));
    }

    #[test]
    fn messages_that_wait_for_the_error_queue_hold_up_others_only_when_they_are_very_many() {
        let (mut intake, now) = intake();
        for waiting in [499, 1] {
            intake.step(now, Event::Received { count: 10 });
            let next = intake.step(now, Event::Stored { away: None, waiting });
            assert_eq!(next, if waiting == 499 { receive(10) } else { SOMETHING_ENDS });
        }
        assert_eq!(intake.step(now, Event::Ended { waited: Some(1) }), receive(10));
        assert_eq!(intake.step(now, Event::Ended { waited: Some(499) }), receive(10));
    }

    #[test]
    fn stopping_receives_nothing_more_and_waits_for_all_batches() {
        let (mut intake, now) = intake();
        intake.step(now, Event::Received { count: 10 });
        intake.step(now, Event::Stored { away: None, waiting: 1 });
        intake.step(now, Event::Received { count: 9 });
        assert_eq!(intake.step(now, Event::Stop), SOMETHING_ENDS);
        assert_eq!(intake.step(now, STORED), SOMETHING_ENDS);
        assert_eq!(intake.step(now, ENDED), SOMETHING_ENDS);
        assert_eq!(intake.step(now, Event::Ended { waited: Some(1) }), Action::Finished);
    }

    #[test]
    fn a_batch_that_panics_is_followed_by_a_pause() {
        let (mut intake, now) = intake();
        intake.step(now, Event::Received { count: 10 });
        assert_eq!(intake.step(now, Event::Panicked { waited: None, pause: SECOND }), deaf(now + SECOND));
        assert_eq!(intake.step(now, Event::Stop), Action::Finished);
    }
}
