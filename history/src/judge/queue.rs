//! The way into the store through a queue: a client hands a message over, a pump stores it and takes it from the
//! queue.

use jiff::{SignedDuration, Timestamp};

use super::{
    Judge, later,
    record::{Lease, Record},
};
use crate::{Queued, SettledCopy};

/// A message in the queue. One that was handed over twice is there twice.
#[derive(Debug)]
pub(super) struct Copy {
    pub id: String,
    pub since: Timestamp,
    /// When a pump took it for the first time.
    pub taken: Option<Timestamp>,
    pub lease: Option<Lease>,
    /// The clock leapt while it was here: how long it waited cannot be told.
    pub leapt: bool,
    /// The clock leapt while it was held: nobody can know whether it still is.
    pub unsure: bool,
}

impl Copy {
    fn held(&self, at: Timestamp) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.is_valid(at))
    }
}

impl Judge {
    pub(super) fn handed_over(&mut self, id: &str, position: u64, at: Timestamp) {
        let Some(record) = self.messages.get_mut(id) else {
            return self.violated("S2", at, format!("{id} is in the queue, which nobody ever sent"));
        };
        record.handed_over.get_or_insert(at);
        record.copies += 1;
        record.queued += 1;
        let copy =
            Copy { id: id.to_owned(), since: at, taken: None, lease: None, leapt: false, unsure: false };
        self.queue.insert(position, copy);
    }

    pub(super) fn accepted(&mut self, id: &str, at: Timestamp) {
        let Some(record) = self.messages.get_mut(id) else { return };
        record.acknowledged = true;
        if record.queued == 0 && record.kept.is_none() && !record.is_settled() {
            self.violated("S1", at, format!("{id} is acknowledged and not in the queue"));
        }
    }

    pub(super) fn received(
        &mut self,
        process: u32,
        claim: u64,
        until: Option<Timestamp>,
        queued: &[Queued],
        at: Timestamp,
    ) {
        for Queued { position, id } in queued {
            let lease = Lease { claim, process, granted: at, until };
            let before = match self.queue.get_mut(position) {
                Some(copy) if copy.id == *id => copy.lease.replace(lease).filter(|_| !copy.unsure),
                _ => {
                    self.violated("S5", at, format!("{id} is received and should not be in the queue"));
                    continue;
                }
            };
            if let Some(copy) = self.queue.get_mut(position) {
                copy.taken.get_or_insert(at);
                if std::mem::take(&mut copy.unsure) {
                    self.may_come_again(id);
                }
            }
            match before {
                Some(before) if before.is_valid(at) => {
                    let what =
                        format!("{id} is held by process {} and received by {process}", before.process);
                    self.violated("S4", at, what);
                }
                Some(before) => self.lock_ran_out(id, before, at),
                None => {}
            }
        }
    }

    /// A lock ended without settling a message: in time or not.
    fn lock_ran_out(&mut self, id: &str, lease: Lease, at: Timestamp) {
        self.counts.locks_ran_out += 1;
        self.may_come_again(id);
        if !self.troubled.contains(&lease.process) && !self.buried_locks.contains(&lease.claim) {
            self.violated("S6", at, format!("{id} was held by a healthy pump that did not renew"));
        }
    }

    /// A message that cannot be stored may go to the error queue once more; what can be stored is stored once.
    fn may_come_again(&mut self, id: &str) {
        if let Some(record) = self.messages.get_mut(id).filter(|record| record.unstorable) {
            record.excuses += 1;
        }
    }

    /// S7: what is taken from the queue is somewhere else by then.
    pub(super) fn completed(&mut self, claim: u64, copies: &[SettledCopy], at: Timestamp) {
        for SettledCopy { position, held } in copies {
            let copy = self.queue.get(position);
            let holds = copy.and_then(|copy| copy.held(at)).is_some_and(|lease| lease.claim == claim);
            if holds != *held && !copy.is_some_and(|copy| copy.unsure) {
                let what = format!("lock {claim} on position {position}: held {holds}, answered {held}");
                self.violated("S5", at, what);
            }
            if !*held {
                continue;
            }
            let Some(copy) = self.queue.remove(position) else { continue };
            let Some(record) = self.messages.get_mut(&copy.id) else { continue };
            record.queued -= 1;
            if record.kept.is_none() && !record.is_settled() {
                let what = format!("{} is taken from the queue before it is anywhere else", copy.id);
                self.violated("S7", at, what);
            }
        }
    }

    pub(super) fn given_back(&mut self, claim: u64, positions: &[u64], at: Timestamp) {
        positions.iter().for_each(|position| drop(self.end_lock(claim, *position, at)));
    }

    pub(super) fn lock_renewed(&mut self, claim: u64, until: Timestamp, at: Timestamp) {
        let mut lost = false;
        for copy in self.queue.values_mut() {
            let unsure = copy.unsure;
            let Some(lease) = copy.lease.as_mut().filter(|lease| lease.claim == claim) else { continue };
            lost |= !lease.is_valid(at) && !unsure;
            lease.until = Some(until);
        }
        if lost {
            self.violated("S5", at, format!("lock {claim} was lost and is renewed"));
        }
    }

    /// What it held is free again, whether it was stored or not.
    pub(super) fn lock_dropped(&mut self, claim: u64, at: Timestamp) {
        let own = |copy: &Copy| copy.lease.is_some_and(|lease| lease.claim == claim);
        let held: Vec<u64> = self.queue.iter().filter(|(_, copy)| own(copy)).map(|(at, _)| *at).collect();
        for position in held {
            if let Some(id) = self.end_lock(claim, position, at) {
                self.may_come_again(&id);
            }
        }
    }

    /// Answers with the message if the lock still held it.
    fn end_lock(&mut self, claim: u64, position: u64, at: Timestamp) -> Option<String> {
        let copy = self.queue.get_mut(&position)?;
        let lease = copy.lease.take_if(|lease| lease.claim == claim)?;
        let (id, unsure) = (copy.id.clone(), copy.unsure);
        if lease.is_valid(at) || unsure {
            return Some(id);
        }
        self.lock_ran_out(&id, lease, at);
        None
    }

    /// L9: locks may be over early or last longer, and what a message waited cannot be told any more.
    pub(super) fn clock_leapt_over_queue(&mut self, at: Timestamp) {
        for copy in self.queue.values_mut() {
            let Some(record) = self.messages.get_mut(&copy.id) else { continue };
            record.handed_over = record.handed_over.map(|_| Timestamp::MIN);
            record.leapt.extend(copy.lease.map(|lease| lease.process));
            copy.unsure |= copy.lease.is_some();
            copy.since = copy.lease.and_then(|lease| lease.until).unwrap_or(at).max(at);
            copy.leapt = true;
        }
    }

    /// Whether a process holds a message in the queue.
    pub(super) fn holds_in_queue(&self, process: u32, id: &str, at: Timestamp) -> bool {
        let by_process = |copy: &Copy| copy.unsure || copy.held(at).is_some_and(|l| l.process == process);
        self.queue.values().any(|copy| copy.id == id && by_process(copy))
    }

    /// L12: what a process that has stopped holds in the queue.
    pub(super) fn left_in_queue(&self, process: u32, at: Timestamp) -> impl Iterator<Item = &String> {
        let own = move |lease: &Lease| lease.process == process && !self.buried_locks.contains(&lease.claim);
        let held = move |copy: &&Copy| !copy.unsure && copy.held(at).is_some_and(own);
        self.queue.values().filter(held).map(|copy| &copy.id)
    }

    /// When a message that was handed over is due at the latest, if it is stored now: what it waited in the queue
    /// counts, only the time in the hands of the pump may be lost.
    pub(super) fn latest_due(&self, id: &str, delay: SignedDuration, at: Timestamp) -> Timestamp {
        let due = |copy: &Copy| {
            let taken = copy.taken.filter(|_| !copy.leapt);
            let in_hand = taken.map_or(SignedDuration::MAX, |taken| at.duration_since(taken));
            later(later(copy.since, delay), in_hand)
        };
        let latest = self.queue.values().filter(|copy| copy.id == id).map(due).max();
        latest.unwrap_or(Timestamp::MAX).min(later(at, delay)).max(at)
    }

    /// L1, L3: nothing is in the queue for too long.
    pub(super) fn overdue_in_queue(&self, at: Timestamp) -> Vec<(&'static str, String)> {
        let overdue = |copy: &Copy| {
            let patience = self.messages.get(&copy.id).and_then(|record: &Record| record.patience);
            let converged = self.healed.zip(self.rules.converges_within);
            if converged.is_some_and(|(healed, bound)| at > later(copy.since.max(healed), bound)) {
                return Some(("L1", format!("{} is still in the queue", copy.id)));
            }
            let impatient = patience.is_some_and(|patience| at > later(copy.since, patience));
            impatient.then(|| ("L3", format!("{} is still in the queue", copy.id)))
        };
        self.queue.values().filter_map(overdue).collect()
    }
}
