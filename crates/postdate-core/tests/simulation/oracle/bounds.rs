//! How a process behaves: how often it calls, what its breakers do.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use postdate_core::{Address, BreakerName, NextDue, Operation, Stopped};

use super::{LONGEST_WAIT, Life, Oracle};

const WINDOW: Duration = Duration::from_secs(10);
/// Contended polls back off to one a second, but begin anew after each message that was found.
const MOST_EMPTY_POLLS: usize = 60;
/// A loop and two batches or three, each with pauses of 50 ms doubling to 1 s.
const MOST_CALLS_IN_AN_OUTAGE: usize = 60;
/// The engine's default for all breakers.
const TIME_TO_TRIGGER: Duration = Duration::from_secs(30);

/// What one process did.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    /// It was frozen, or a call of it failed: then its leases may run out.
    troubled: bool,
    /// Claims that it cannot reach.
    buried: BTreeSet<u64>,
    calls: u64,
    in_outage: VecDeque<Timestamp>,
    empty_polls: VecDeque<Timestamp>,
    /// The last answer said that something is due now: for which version of the store and which question.
    promised: Option<(u64, Vec<Address>)>,
    destinations: BTreeMap<Address, Streak>,
    operations: BTreeMap<Operation, Streak>,
}

/// An unbroken row of failures, and the last success.
#[derive(Debug, Default)]
struct Streak {
    failing_since: Option<Timestamp>,
    last_success: Option<Timestamp>,
}

impl Streak {
    fn failure(&mut self, now: Timestamp) {
        self.failing_since.get_or_insert(now);
    }

    fn success(&mut self, now: Timestamp) {
        *self = Self { failing_since: None, last_success: Some(now) };
    }

    fn justifies_tripping(&self, now: Timestamp) -> bool {
        self.failing_since.is_some_and(|since| now >= since + TIME_TO_TRIGGER)
    }
}

impl Conduct {
    pub(super) fn should_have_renewed(&self, claim: u64) -> bool {
        !self.troubled && !self.buried.contains(&claim)
    }

    pub(super) fn bury(&mut self, claim: u64) {
        self.buried.insert(claim);
    }

    pub(super) fn reached(&mut self, destination: &Address, now: Timestamp) {
        self.destinations.entry(destination.clone()).or_default().success(now);
    }

    pub(super) fn unreached(&mut self, destination: &Address, now: Timestamp) {
        self.destinations.entry(destination.clone()).or_default().failure(now);
    }
}

impl Oracle {
    /// A process was frozen, or worse.
    pub(crate) fn disturbed(&mut self, life: &Life) {
        self.conduct(life).troubled = true;
    }

    /// L6: an outage is met with pauses, whatever the backlog.
    pub(crate) fn called(&mut self, life: &Life, operation: Operation, cut: bool, now: Timestamp) {
        if is_of_clients(operation) {
            return;
        }
        let conduct = self.conduct(life);
        conduct.calls += 1;
        if !cut {
            conduct.in_outage.clear();
            return;
        }
        let calls = in_window(&mut conduct.in_outage, now);
        if calls > MOST_CALLS_IN_AN_OUTAGE {
            self.violated(
                "L6",
                now,
                format!("{life} calls a store that is down {calls} times in {WINDOW:?}"),
            );
        }
    }

    pub(crate) fn answered(&mut self, life: &Life, operation: Operation, reached: bool, now: Timestamp) {
        let conduct = self.conduct(life);
        let streak = conduct.operations.entry(operation).or_default();
        if reached {
            streak.success(now);
        } else {
            streak.failure(now);
            conduct.troubled |= !is_of_clients(operation);
        }
    }

    /// The store said when something will be due.
    pub(crate) fn asked(&mut self, life: &Life, except: &[Address], next: NextDue, now: Timestamp) {
        let version = self.version;
        let due = next.due.is_some_and(|due| due <= now);
        self.conduct(life).promised = due.then(|| (version, except.to_vec()));
    }

    /// L5: nobody spins on what others hold.
    pub(crate) fn fetched_nothing(&mut self, life: &Life, except: &[Address], now: Timestamp) {
        let version = self.version;
        let conduct = self.conduct(life);
        let misled = conduct.promised.take().is_some_and(|promised| promised == (version, except.to_vec()));
        let polls = in_window(&mut conduct.empty_polls, now);
        if misled {
            self.violated("L5", now, format!("{life} is sent to fetch what others hold"));
        }
        if polls > MOST_EMPTY_POLLS {
            self.violated("L5", now, format!("{life} polls in vain {polls} times in {WINDOW:?}"));
        }
    }

    /// L13: a breaker trips only after its time without a success.
    pub(crate) fn breaker_tripped(&mut self, life: &Life, breaker: &BreakerName, now: Timestamp) {
        let conduct = self.conduct(life);
        let justified = match breaker {
            BreakerName::Store => {
                conduct.operations.get(&Operation::Store).is_some_and(|streak| streak.justifies_tripping(now))
            }
            BreakerName::Fetch => conduct.operations.values().any(|streak| streak.justifies_tripping(now)),
            BreakerName::Dispatch(to) => {
                conduct.destinations.get(to).is_some_and(|streak| streak.justifies_tripping(now))
            }
            BreakerName::Receive | BreakerName::Recovery => true,
        };
        if !justified {
            self.violated("L13", now, format!("the breaker for {breaker} of {life} trips without need"));
        }
    }

    /// L13: no breaker is open whose calls succeed.
    pub(crate) fn still_tripped(&mut self, life: &Life, breaker: &BreakerName, now: Timestamp) {
        let conduct = self.conduct(life);
        let works = match breaker {
            BreakerName::Store => conduct.operations.get(&Operation::Store).is_some_and(Streak::works),
            BreakerName::Fetch => conduct.operations.values().all(Streak::works),
            BreakerName::Dispatch(to) => conduct.destinations.get(to).is_some_and(Streak::works),
            BreakerName::Receive | BreakerName::Recovery => true,
        };
        if works {
            self.violated(
                "L13",
                now,
                format!("the breaker for {breaker} of {life} is open though all is well"),
            );
        }
    }

    /// How many calls to the store each process has made.
    pub(crate) fn calls(&self) -> Vec<u64> {
        self.lives.values().map(|conduct| conduct.calls).collect()
    }

    /// L5: what processes called in a time in which there was nothing to do, since `before` was counted.
    pub(crate) fn idled(&mut self, before: &[u64], idle: Duration, now: Timestamp) {
        let waits = idle.as_secs().div_ceil(LONGEST_WAIT.as_secs());
        let most = 2 * (waits + 1);
        let calls = self.calls();
        for (life, (calls, before)) in calls.iter().zip(before).enumerate() {
            if calls - before > most {
                let what = format!("process {life} calls {} times in an idle {idle:?}", calls - before);
                self.violated("L5", now, what);
            }
        }
    }

    /// L12: nothing is held by a process that was stopped.
    pub(crate) fn stopped(&mut self, life: &Life, stopped: Stopped, begun: Timestamp, now: Timestamp) {
        let took = now.duration_since(begun);
        if took.as_secs() > 31 {
            self.violated("L12", now, format!("stopping {life} took {took:?}"));
        }
        let held = self.letters.iter().filter_map(|(id, record)| Some((id, record.held(now)?)));
        let own = held.filter(|(_, lease)| lease.life == life.number);
        let conduct = self.lives.get(&life.number);
        let reachable =
            own.filter(|(_, lease)| conduct.is_some_and(|conduct| !conduct.buried.contains(&lease.claim)));
        let left: Vec<String> = reachable.map(|(id, _)| id.to_string()).collect();
        if !left.is_empty() {
            self.violated("L12", now, format!("{life} was stopped ({stopped:?}) and holds {left:?}"));
        }
    }
}

impl Streak {
    fn works(&self) -> bool {
        self.failing_since.is_none() && self.last_success.is_some()
    }
}

fn is_of_clients(operation: Operation) -> bool {
    matches!(operation, Operation::Store | Operation::Cancel | Operation::Reschedule)
}

fn in_window(times: &mut VecDeque<Timestamp>, now: Timestamp) -> usize {
    times.push_back(now);
    while times.front().is_some_and(|first| *first + WINDOW < now) {
        times.pop_front();
    }
    times.len()
}
