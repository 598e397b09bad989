//! What only a simulation can know of processes: how often they call, what their breakers do.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use postdate_core::{Address, BreakerName, DispatchError, DispatchErrorKind, NextDue, Operation};
use postdate_history::{Violation, What};

use crate::{life::Life, plan::LONGEST_WAIT, wire::To};

const WINDOW: Duration = Duration::from_secs(10);
/// Contended polls back off to one a second, but begin anew after each message that was found: so many in 10 s
/// for each message that there is.
const EMPTY_POLLS_PER_MESSAGE: usize = 2;
const FEWEST_MESSAGES: usize = 30;
/// More findings than this say nothing more.
const ENOUGH: usize = 10;
/// A loop and two batches or three, each with pauses of 50 ms doubling to 1 s.
const MOST_CALLS_IN_AN_OUTAGE: usize = 60;
/// The engine's default for all breakers.
const TIME_TO_TRIGGER: Duration = Duration::from_secs(30);
/// Answers that come so soon after each other may be heard in any order.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Stopping may take the drain time and a moment.
const LONGEST_STOP: Duration = Duration::from_secs(31);

/// How all processes behave.
#[derive(Debug)]
pub(crate) struct Bounds {
    most_empty_polls: usize,
    lives: BTreeMap<u32, Conduct>,
    /// Grows with every effect on the store.
    version: u64,
    violations: Vec<Violation>,
}

/// Now, by the clock of the store and from the start of the world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub store: Timestamp,
    pub elapsed: Duration,
}

/// What one process did.
#[derive(Debug, Default)]
struct Conduct {
    calls: u64,
    in_outage: VecDeque<Duration>,
    empty_polls: VecDeque<Duration>,
    /// The last answer said that something is due now: for which version of the store and which question.
    promised: Option<(u64, Vec<Address>)>,
    destinations: BTreeMap<Address, Streak>,
    operations: BTreeMap<Operation, Streak>,
    /// The same of the queue of the pump.
    queue_calls: u64,
    in_queue_outage: VecDeque<Duration>,
    stores_in_outage: VecDeque<Duration>,
    queue_operations: BTreeMap<Operation, Streak>,
}

/// An unbroken row of failures, and the last success.
#[derive(Debug, Default)]
struct Streak {
    failing_since: Option<Duration>,
    last_failure: Option<Duration>,
    /// A failure just before the last success: whoever waits for both may hear of it after the success.
    overtaken: Option<Duration>,
    succeeded: bool,
}

impl Streak {
    fn answered(&mut self, success: bool, at: Duration) {
        if success {
            let overtaken = self.last_failure.filter(|failure| at < *failure + AT_ONCE);
            *self = Self { overtaken, succeeded: true, ..Self::default() };
        } else {
            self.failing_since.get_or_insert(at);
            self.last_failure = Some(at);
        }
    }

    fn justifies_tripping(&self, at: Duration) -> bool {
        let since = self.failing_since.map(|since| self.overtaken.unwrap_or(since));
        since.is_some_and(|since| at >= since + TIME_TO_TRIGGER)
    }

    fn works(&self) -> bool {
        self.failing_since.is_none() && self.succeeded
    }
}

impl Bounds {
    /// In a world of so many messages.
    pub(crate) fn new(messages: u64) -> Self {
        let messages = usize::try_from(messages).unwrap_or(usize::MAX).max(FEWEST_MESSAGES);
        let most_empty_polls = EMPTY_POLLS_PER_MESSAGE.saturating_mul(messages);
        Self { most_empty_polls, lives: BTreeMap::new(), version: 0, violations: Vec::new() }
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn violated(&mut self, promise: &'static str, now: Moment, what: String) {
        if self.violations.len() < ENOUGH {
            self.violations.push(Violation { promise, at: now.store, what });
        }
    }

    /// A process starts. Answers with its number.
    pub(crate) fn born(&mut self) -> u32 {
        let number = u32::try_from(self.lives.len()).unwrap_or(u32::MAX);
        self.lives.insert(number, Conduct::default());
        number
    }

    /// Something happened, perhaps to the store.
    pub(crate) fn happened(&mut self, what: &What) {
        self.version += u64::from(match what {
            What::Stored { .. }
            | What::Removed { .. }
            | What::Failed { .. }
            | What::Released { .. }
            | What::Committed { .. }
            | What::Dropped { .. }
            | What::Cancelled { .. }
            | What::Rescheduled { .. }
            | What::ClockLeapt => true,
            What::Fetched { messages, .. } => !messages.is_empty(),
            _ => false,
        });
    }

    fn conduct(&mut self, life: &Life) -> &mut Conduct {
        self.lives.entry(life.number).or_default()
    }

    /// L6: an outage is met with pauses, whatever the backlog.
    pub(crate) fn called(&mut self, life: &Life, to: To, operation: Operation, cut: bool, now: Moment) {
        if is_of_clients(operation) {
            return;
        }
        let conduct = self.conduct(life);
        let (calls, in_outage) = match to {
            To::Store => (&mut conduct.calls, &mut conduct.in_outage),
            To::Queue => (&mut conduct.queue_calls, &mut conduct.in_queue_outage),
        };
        *calls += 1;
        let calls = calls_in_outage(in_outage, cut, now);
        self.check_outage(life, to, calls, now);
    }

    /// L6: so it is where a pump stores.
    pub(crate) fn pump_stores(&mut self, life: &Life, cut: bool, now: Moment) {
        let calls = calls_in_outage(&mut self.conduct(life).stores_in_outage, cut, now);
        self.check_outage(life, To::Store, calls, now);
    }

    fn check_outage(&mut self, life: &Life, to: To, calls: usize, now: Moment) {
        if calls > MOST_CALLS_IN_AN_OUTAGE {
            let what = format!("{life} calls a {to:?} that is down {calls} times in {WINDOW:?}");
            self.violated("L6", now, what);
        }
    }

    pub(crate) fn answered(&mut self, life: &Life, to: To, operation: Operation, reached: bool, now: Moment) {
        let conduct = self.conduct(life);
        let operations = match to {
            To::Store => &mut conduct.operations,
            To::Queue => &mut conduct.queue_operations,
        };
        operations.entry(operation).or_default().answered(reached, now.elapsed);
    }

    /// The store said when something will be due.
    pub(crate) fn asked(&mut self, life: &Life, except: &[Address], next: NextDue, now: Moment) {
        let version = self.version;
        let due = next.due.is_some_and(|due| due <= now.store);
        self.conduct(life).promised = due.then(|| (version, except.to_vec()));
    }

    /// L5: nobody spins on what others hold.
    pub(crate) fn fetched_nothing(&mut self, life: &Life, except: &[Address], now: Moment) {
        let version = self.version;
        let conduct = self.conduct(life);
        let misled = conduct.promised.take().is_some_and(|promised| promised == (version, except.to_vec()));
        let polls = in_window(&mut conduct.empty_polls, now.elapsed);
        if misled {
            self.violated("L5", now, format!("{life} is sent to fetch what others hold"));
        }
        if polls > self.most_empty_polls {
            self.violated("L5", now, format!("{life} polls in vain {polls} times in {WINDOW:?}"));
        }
    }

    /// L13: a breaker trips only after its time without a success.
    pub(crate) fn breaker_tripped(&mut self, life: &Life, breaker: &BreakerName, now: Moment) {
        let conduct = self.conduct(life);
        let justified = match breaker {
            // A pump also asks for what it seems to have stored before.
            BreakerName::Store => [Operation::Store, Operation::Query].iter().any(|operation| {
                let streak = conduct.operations.get(operation);
                streak.is_some_and(|streak| streak.justifies_tripping(now.elapsed))
            }),
            BreakerName::Fetch => {
                conduct.operations.values().any(|streak| streak.justifies_tripping(now.elapsed))
            }
            BreakerName::Dispatch(to) => {
                conduct.destinations.get(to).is_some_and(|streak| streak.justifies_tripping(now.elapsed))
            }
            BreakerName::Receive => {
                conduct.queue_operations.values().any(|streak| streak.justifies_tripping(now.elapsed))
            }
            BreakerName::Recovery => true,
        };
        if !justified {
            self.violated("L13", now, format!("the breaker for {breaker} of {life} trips without need"));
        }
    }

    /// L13: no breaker is open whose calls succeed.
    pub(crate) fn still_tripped(&mut self, life: &Life, breaker: &BreakerName, now: Moment) {
        let conduct = self.conduct(life);
        let works = match breaker {
            BreakerName::Store => conduct.operations.get(&Operation::Store).is_some_and(Streak::works),
            BreakerName::Fetch => conduct.operations.values().all(Streak::works),
            BreakerName::Dispatch(to) => conduct.destinations.get(to).is_some_and(Streak::works),
            BreakerName::Receive => conduct.queue_operations.values().all(Streak::works),
            BreakerName::Recovery => true,
        };
        if works {
            self.violated(
                "L13",
                now,
                format!("the breaker for {breaker} of {life} is open though all is well"),
            );
        }
    }

    /// How many calls to the store and to the queue each process has made.
    pub(crate) fn calls(&self) -> Vec<[u64; 2]> {
        self.lives.values().map(|conduct| [conduct.calls, conduct.queue_calls]).collect()
    }

    /// L5: what processes called in a time in which there was nothing to do, since `before` was counted.
    pub(crate) fn idled(&mut self, before: &[[u64; 2]], idle: Duration, now: Moment) {
        let waits = idle.as_secs().div_ceil(LONGEST_WAIT.as_secs());
        let most = [2 * (waits + 1), waits + 2];
        let calls = self.calls();
        for (life, (calls, before)) in calls.iter().zip(before).enumerate() {
            for ((calls, before), most) in calls.iter().zip(before).zip(most) {
                if calls - before > most {
                    let what = format!("process {life} calls {} times in an idle {idle:?}", calls - before);
                    self.violated("L5", now, what);
                }
            }
        }
    }

    /// L12: stopping ends with the drain time.
    pub(crate) fn stopped(&mut self, life: &Life, took: Duration, now: Moment) {
        if took > LONGEST_STOP {
            self.violated("L12", now, format!("stopping {life} took {took:?}"));
        }
    }

    /// A process was told what became of what it sent to one destination.
    pub(crate) fn told(
        &mut self,
        life: &Life,
        destination: &Address,
        outcomes: &[Result<(), DispatchError>],
        now: Moment,
    ) {
        let unavailable = |outcome: &Result<(), DispatchError>| {
            outcome.as_ref().is_err_and(|error| error.kind() == DispatchErrorKind::Unavailable)
        };
        let streak = self.conduct(life).destinations.entry(destination.clone()).or_default();
        if !outcomes.iter().all(unavailable) {
            streak.answered(true, now.elapsed);
        }
        if outcomes.iter().any(unavailable) {
            streak.answered(false, now.elapsed);
        }
    }

    /// A process could not reach a destination.
    pub(crate) fn unreached(&mut self, life: &Life, destination: &Address, now: Moment) {
        let streak = self.conduct(life).destinations.entry(destination.clone()).or_default();
        streak.answered(false, now.elapsed);
    }
}

pub(crate) fn is_of_clients(operation: Operation) -> bool {
    matches!(operation, Operation::Store | Operation::Cancel | Operation::Reschedule)
}

fn calls_in_outage(times: &mut VecDeque<Duration>, cut: bool, now: Moment) -> usize {
    if cut {
        return in_window(times, now.elapsed);
    }
    times.clear();
    0
}

fn in_window(times: &mut VecDeque<Duration>, now: Duration) -> usize {
    times.push_back(now);
    while times.front().is_some_and(|first| *first + WINDOW < now) {
        times.pop_front();
    }
    times.len()
}
