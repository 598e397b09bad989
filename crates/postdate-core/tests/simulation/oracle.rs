//! The judge: keeps its own record of every message and checks each effect against the promises.
//!
//! It never reads the store's columns. Leases here are *ghost leases*: what the rules say, not what the store
//! believes.

mod bounds;
mod keeping;
mod sending;

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use postdate_core::{MessageId, OutgoingMessage};

use crate::{
    faults::{Counters, Injected},
    life::Life,
    plan::{ARCHIVE, BILLING, HEALED, LONGEST_WAIT, NOWHERE, Plan},
};
use bounds::Conduct;

/// Everything settles so long after the faults have stopped: a lease, the longest wait, and all the back-off
/// steps of a message that is refused again and again.
const CONVERGENCE: Duration = Duration::from_secs(30 + 60 + 90);
/// More findings than this say nothing more.
const ENOUGH: usize = 5;

/// What is known of all messages and all processes.
#[derive(Debug)]
pub(crate) struct Oracle {
    pub counters: Counters,
    plan: Plan,
    healed: Timestamp,
    letters: BTreeMap<MessageId, Record>,
    lives: BTreeMap<u32, Conduct>,
    last_claim: u64,
    /// Grows with every effect on the store.
    version: u64,
    violations: Vec<Violation>,
}

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub promise: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.promise, self.what)
    }
}

/// What kind of message it is, which the engine has to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Healthy,
    /// Its destination refuses it.
    Poison,
    /// The dispatcher panics over it.
    Panics,
    /// Its destination does not exist.
    Homeless,
}

#[derive(Debug)]
struct Record {
    message: OutgoingMessage,
    nature: Nature,
    acknowledged: bool,
    /// It is in the store.
    kept: Option<Kept>,
    lease: Option<Lease>,
    delivered: u32,
    moved: u32,
    cancelled: bool,
    /// Attempts that failed by the message's own fault, as far as the engine was told.
    refused: u32,
    /// Each permits one more delivery.
    excuses: u32,
    /// Deliveries that the engine has not been told of.
    open: u32,
}

#[derive(Debug)]
struct Kept {
    due: Timestamp,
    /// Not to be fetched before this.
    attempt: Timestamp,
    since: Timestamp,
    /// Failures counted by the store.
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    claim: u64,
    life: u32,
    until: Timestamp,
}

impl Lease {
    fn is_valid(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

impl Record {
    fn is_settled(&self) -> bool {
        self.delivered > 0 || self.moved > 0 || self.cancelled
    }

    /// Whether something happened that makes counting attempts and deliveries inexact.
    fn is_excused(&self) -> bool {
        self.excuses > 0 || self.open > 0
    }

    fn held(&self, now: Timestamp) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.is_valid(now))
    }
}

impl Oracle {
    pub(crate) fn new(plan: &Plan, start: Timestamp) -> Self {
        Self {
            counters: Counters::default(),
            plan: plan.clone(),
            healed: start + HEALED,
            letters: BTreeMap::new(),
            lives: BTreeMap::new(),
            last_claim: 0,
            version: 0,
            violations: Vec::new(),
        }
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn violated(&mut self, promise: &'static str, now: Timestamp, what: String) {
        if self.violations.len() < ENOUGH {
            let after = now.duration_since(self.healed - HEALED).as_secs_f64();
            self.violations.push(Violation { promise, what: format!("at {after:.3} s: {what}") });
        }
    }

    /// A client tries to store this.
    pub(crate) fn attempted(&mut self, message: &OutgoingMessage, nature: Nature) {
        let record = Record {
            message: message.clone(),
            nature,
            acknowledged: false,
            kept: None,
            lease: None,
            delivered: 0,
            moved: 0,
            cancelled: false,
            refused: 0,
            excuses: 0,
            open: 0,
        };
        self.letters.insert(message.id.clone(), record);
    }

    pub(crate) fn nature(&self, id: &MessageId) -> Option<Nature> {
        self.letters.get(id).map(|record| record.nature)
    }

    /// A process starts. Answers with its number.
    pub(crate) fn born(&mut self) -> u32 {
        let number = u32::try_from(self.lives.len()).unwrap_or(u32::MAX);
        self.lives.insert(number, Conduct::default());
        number
    }

    /// S1 and the liveness promises: everything is where it should be, and nothing is there for too long.
    pub(crate) fn audit(&mut self, now: Timestamp, store_holds: impl Fn(&MessageId) -> bool) {
        let mut found = Vec::new();
        for (id, record) in &self.letters {
            if record.kept.is_some() != store_holds(id) {
                found.push(("S1", format!("{id}: the store and the record of its effects disagree")));
            }
            if record.acknowledged && record.kept.is_none() && !record.is_settled() {
                found.push(("S1", format!("{id} is lost")));
            }
            if let Some((promise, bound)) = self.overdue(record, now) {
                found.push((
                    promise,
                    format!("{id} is still in the store, {bound:?} after it should be gone"),
                ));
            }
        }
        for (promise, what) in found {
            self.violated(promise, now, what);
        }
    }

    /// Whether there is something in the store that will be due within a day.
    pub(crate) fn is_busy(&self, now: Timestamp) -> bool {
        let soon = now + Duration::from_secs(86_400);
        self.letters.values().filter_map(|record| record.kept.as_ref()).any(|kept| kept.attempt < soon)
    }

    /// The promise that is broken by a message still being in the store, and within what it should be gone.
    fn overdue(&self, record: &Record, now: Timestamp) -> Option<(&'static str, Duration)> {
        let kept = record.kept.as_ref()?;
        let from = kept.due.max(kept.since);
        if now > from.max(self.healed) + CONVERGENCE {
            return Some(("L1", CONVERGENCE));
        }
        let patience = self.patience(record)?;
        (now > from + patience && record.delivered == 0).then_some(("L3", patience))
    }

    /// How late a message may be while the faults of this world are on.
    fn patience(&self, record: &Record) -> Option<Duration> {
        let plan = &self.plan;
        let undisturbed = match record.message.destination.as_str() {
            BILLING => plan.billing_outages.is_empty(),
            ARCHIVE => plan.slow_archive == 0 && plan.hanging_archive == 0,
            NOWHERE => false,
            _ => true,
        };
        plan.patience().filter(|_| undisturbed && record.nature == Nature::Healthy)
    }

    fn conduct(&mut self, life: &Life) -> &mut Conduct {
        self.lives.entry(life.number).or_default()
    }

    /// An excuse for one more delivery.
    fn excuse(&mut self, id: &MessageId) {
        if let Some(record) = self.letters.get_mut(id) {
            record.excuses += 1;
        }
    }
}
