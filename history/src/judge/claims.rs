//! Who holds what, and what he does with it.

use jiff::Timestamp;

use super::{
    Judge,
    record::{Claim, Lease},
};
use crate::{Failure, Fetched, Settled, later};

impl Judge {
    pub(super) fn fetched(
        &mut self,
        process: u32,
        claim: u64,
        until: Option<Timestamp>,
        messages: &[Fetched],
        at: Timestamp,
    ) {
        let lease = Lease { claim, process, granted: at, until };
        messages.iter().for_each(|message| self.grant(message, lease, at));
        let ids = messages.iter().map(|message| message.id.clone()).collect();
        self.claims.insert(claim, Claim { process, ids, buried: false });
    }

    fn grant(&mut self, Fetched { id, due, failures }: &Fetched, lease: Lease, at: Timestamp) {
        let (sees_effects, maximum) = (self.sees_effects(), self.rules.maximum_lateness);
        let Some(record) = self.messages.get_mut(id) else {
            return self.violated("S2", at, format!("{id} is fetched, which nobody ever sent"));
        };
        // Who got a message before its sender was told of it, or after its holder died, knows more than the judge.
        if !sees_effects && (record.unsure || record.kept.is_none() && !record.is_settled()) {
            record.keep(*due, *failures, at);
            record.unsure = false;
        }
        record.expired |= maximum.is_some_and(|maximum| at.duration_since(*due) > maximum);
        let before = record.lease.replace(lease);
        match &record.kept {
            None => {
                let promise = if record.cancelled { "S13" } else { "S5" };
                self.violated(promise, at, format!("{id} is fetched and should not be in the store"));
            }
            Some(kept) if kept.attempt > at => {
                let what = format!("{id} is fetched by process {} before {}", lease.process, kept.attempt);
                self.violated("S3", at, what);
            }
            Some(kept) if (kept.due, kept.failures) != (*due, *failures) => {
                let what = format!(
                    "{id} is fetched as due at {due} with {failures} failures, and was {} with {}",
                    kept.due, kept.failures
                );
                self.violated("S5", at, what);
            }
            Some(_) => {}
        }
        match before {
            Some(before) if before.is_valid(at) => {
                let what =
                    format!("{id} is held by process {} and granted to {}", before.process, lease.process);
                self.violated("S4", at, what);
            }
            Some(before) => self.ran_out(id, before, at),
            None => {}
        }
    }

    /// A lease ended without settling a message: in time or not.
    fn ran_out(&mut self, id: &str, lease: Lease, at: Timestamp) {
        self.counts.leases_ran_out += 1;
        // A transaction that is lost undoes what it sent: that costs time and no duplicate.
        let harmless = self.is_exactly_once();
        let Some(record) = self.messages.get_mut(id) else { return };
        record.excuses += 1;
        let excused = record.leapt.contains(&lease.process) || self.troubled.contains(&lease.process);
        if !excused && !harmless && self.claims.get(&lease.claim).is_some_and(|claim| !claim.buried) {
            self.violated("S6", at, format!("{id} was held by a healthy process that did not renew"));
        }
    }

    /// S7: what is removed is somewhere else by then.
    pub(super) fn removed(&mut self, claim: u64, messages: &[Settled], at: Timestamp) {
        for Settled { id, held } in messages {
            if !self.settles(claim, id, *held, at) {
                continue;
            }
            let Some(record) = self.messages.get_mut(id) else { continue };
            record.kept = None;
            if record.arrivals() == 0 {
                self.violated("S7", at, format!("{id} is removed before it is anywhere else"));
            }
        }
    }

    /// S9: a failure that is counted is the message's own.
    pub(super) fn failed(&mut self, claim: u64, from: Timestamp, failures: &[Failure], at: Timestamp) {
        for Failure { id, retry_after, held } in failures {
            if !self.settles(claim, id, *held, at) {
                continue;
            }
            let attempt = self.rounded_up(later(from, *retry_after));
            let Some(record) = self.messages.get_mut(id) else { continue };
            if let Some(kept) = &mut record.kept {
                kept.failures += 1;
                kept.attempt = attempt;
            }
            let own_fault = record.rejections > 0 || record.homeless || record.expired;
            if !own_fault {
                self.violated("S9", at, format!("a failure of {id} is counted, which nobody refused"));
            }
            if *retry_after < self.rules.shortest_retry {
                self.violated("S10", at, format!("{id} is to be tried again after {retry_after:#}"));
            }
        }
    }

    /// S5: what a claim does to a message has an effect as long as it holds it, and no longer. Answers whether it
    /// had one.
    fn settles(&mut self, claim: u64, id: &str, answer: bool, at: Timestamp) -> bool {
        let Some(record) = self.messages.get_mut(id) else { return false };
        let holds = record.held(at).is_some_and(|lease| lease.claim == claim);
        if holds && answer {
            record.lease = None;
        }
        if holds != answer {
            self.violated("S5", at, format!("claim {claim} on {id}: held {holds}, answered {answer}"));
        }
        answer
    }

    pub(super) fn renewed(&mut self, claim: u64, until: Timestamp, at: Timestamp) {
        let Some(ids) = self.claims.get(&claim).map(|claim| &claim.ids) else { return };
        let mut lost = false;
        for id in ids {
            let lease = self.messages.get_mut(id).and_then(|record| record.lease.as_mut());
            let Some(lease) = lease.filter(|lease| lease.claim == claim) else { continue };
            lost |= !lease.is_valid(at);
            lease.until = Some(until);
        }
        if lost {
            self.violated("S5", at, format!("claim {claim} was lost and is renewed"));
        }
    }

    pub(super) fn committed(&mut self, claim: u64, at: Timestamp) {
        for id in self.ids_of(claim) {
            self.end_lease(claim, &id, at);
        }
        self.claims.remove(&claim);
    }

    /// What it held is free again, whether it was sent or not.
    pub(super) fn dropped(&mut self, claim: u64, at: Timestamp) {
        for id in self.ids_of(claim) {
            if self.end_lease(claim, &id, at)
                && let Some(record) = self.messages.get_mut(&id)
            {
                record.excuses += 1;
            }
        }
        self.claims.remove(&claim);
    }

    pub(super) fn buried(&mut self, claim: u64) {
        if let Some(claim) = self.claims.get_mut(&claim) {
            claim.buried = true;
        }
    }

    /// Answers whether the claim still held the message.
    pub(super) fn end_lease(&mut self, claim: u64, id: &str, at: Timestamp) -> bool {
        let lease = self.messages.get_mut(id).map(|record| &mut record.lease);
        let Some(lease) = lease.and_then(|lease| lease.take_if(|lease| lease.claim == claim)) else {
            return false;
        };
        let valid = lease.is_valid(at);
        if !valid {
            self.ran_out(id, lease, at);
        }
        valid
    }

    pub(super) fn ids_of(&self, claim: u64) -> Vec<String> {
        self.claims.get(&claim).map(|claim| claim.ids.clone()).unwrap_or_default()
    }
}
