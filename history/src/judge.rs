//! The judge: keeps its own record of every message and checks each event against the promises.

mod audit;
mod claims;
mod clients;
mod processes;
mod queue;
mod record;
mod sending;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::{Counts, Event, Guarantee, Knowledge, Rules, Verdict, Violation, What, later};
use record::{Claim, Record};

/// More findings than this say nothing more.
const ENOUGH: usize = 10;
/// The process of what happens outside of all.
const NOBODY: u32 = u32::MAX;

/// Takes events one by one, in order, and says which promises they break.
#[derive(Debug)]
pub struct Judge {
    rules: Rules,
    messages: BTreeMap<String, Record>,
    claims: BTreeMap<u64, Claim>,
    /// What is in the queue of the pump, by position.
    queue: BTreeMap<u64, queue::Copy>,
    /// Locks on it that their holders cannot reach.
    buried_locks: BTreeSet<u64>,
    /// Processes whose leases may run out.
    troubled: BTreeSet<u32>,
    healed: Option<Timestamp>,
    counts: Counts,
    violations: Vec<Violation>,
}

impl Judge {
    /// A judge by these rules.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            messages: BTreeMap::new(),
            claims: BTreeMap::new(),
            queue: BTreeMap::new(),
            buried_locks: BTreeSet::new(),
            troubled: BTreeSet::new(),
            healed: None,
            counts: Counts::default(),
            violations: Vec::new(),
        }
    }

    /// Takes note of what happened.
    pub fn take(&mut self, event: &Event) {
        self.counts.events += 1;
        let (at, process) = (event.at, event.process.unwrap_or(NOBODY));
        match &event.what {
            What::Began { .. } => {}
            What::Attempted { id, content, due, patience } => {
                self.attempted(id, Record::new(*content, *due, *patience, at), at);
            }
            What::Stored { id, due } => self.stored(id, *due, at),
            What::Acknowledged { id, due } => self.acknowledged(id, *due, at),
            What::Cancelled { id, answer } => self.cancelled(id, *answer, at),
            What::Rescheduled { id, answer } => self.rescheduled(id, *answer, at),
            What::Fetched { claim, until, messages } => {
                self.fetched(process, *claim, *until, messages, at);
            }
            What::Removed { claim, messages } => self.removed(*claim, messages, at),
            What::Failed { claim, from, messages } => self.failed(*claim, *from, messages, at),
            What::Released { claim, ids } => {
                for id in ids {
                    self.end_lease(*claim, id, at);
                }
            }
            What::Renewed { claim, until } => self.renewed(*claim, *until, at),
            What::Committed { claim } => self.committed(*claim, at),
            What::Dropped { claim } => self.dropped(*claim, at),
            What::Buried { claim } => self.buried(*claim),
            What::HandedOver { id, position } => self.handed_over(id, *position, at),
            What::Accepted { id } => self.accepted(id, at),
            What::Received { claim, until, messages } => {
                self.received(process, *claim, *until, messages, at);
            }
            What::Completed { claim, messages } => self.completed(*claim, messages, at),
            What::GivenBack { claim, positions } => self.given_back(*claim, positions, at),
            What::LockRenewed { claim, until } => self.lock_renewed(*claim, *until, at),
            What::LockDropped { claim } => self.lock_dropped(*claim, at),
            What::LockBuried { claim } => {
                self.buried_locks.insert(*claim);
            }
            What::Sending { ids, way } => self.sending(process, ids, *way, at),
            What::Delivered { id, content } => self.delivered(id, *content, at),
            What::Moved { id, content, attempts, reason } => {
                self.moved(id, *content, *attempts, reason, at);
            }
            What::Refused { id, why } => self.refused(id, *why),
            What::Told { outcomes } => self.told(outcomes),
            What::Died => self.died(process, at),
            What::Disturbed => {
                self.troubled.insert(process);
            }
            What::Stopped => self.stopped(process, at),
            What::ClockLeapt => self.clock_leapt(at),
            What::Healed => self.healed = Some(at),
            What::Audited { ids } => {
                let kept: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
                self.audit(at, |id| kept.contains(id));
            }
        }
    }

    /// The first promises that were broken, in order.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// What there was, up to now.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts;
        self.messages.values().for_each(|record| record.count(&mut counts));
        counts
    }

    /// The end of the trial.
    pub fn verdict(self) -> Verdict {
        Verdict { counts: self.counts(), violations: self.violations }
    }

    /// How many messages are in the queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is something in the queue, or in the store that is to be tried within a day.
    pub fn is_busy(&self, at: Timestamp) -> bool {
        let soon = later(at, SignedDuration::from_hours(24));
        let kept = |record: &Record| record.kept.as_ref().is_some_and(|kept| kept.attempt < soon);
        !self.queue.is_empty() || self.messages.values().any(kept)
    }

    fn violated(&mut self, promise: &'static str, at: Timestamp, what: String) {
        if self.violations.len() < ENOUGH {
            self.violations.push(Violation { promise, at, what });
        }
    }

    fn sees_effects(&self) -> bool {
        self.rules.knowledge == Knowledge::Effects
    }

    fn is_exactly_once(&self) -> bool {
        self.rules.guarantee == Guarantee::ExactlyOnce
    }

    fn rounded_up(&self, instant: Timestamp) -> Timestamp {
        let step = self.rules.resolution.as_nanos().max(1);
        let over = instant.as_nanosecond().rem_euclid(step);
        let up = if over == 0 { 0 } else { step - over };
        Timestamp::from_nanosecond(instant.as_nanosecond() + up).unwrap_or(Timestamp::MAX)
    }
}
