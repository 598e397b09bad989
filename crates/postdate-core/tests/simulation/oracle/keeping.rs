//! What the store does: storing, claiming, removing.

use jiff::Timestamp;
use postdate_core::{
    Cancellation, DelayedMessage, Due, DueMessage, Failure, MessageId, Rescheduling, round_up,
};

use super::{Injected, Kept, Lease, Life, Nature, Oracle};

const RESOLUTION: std::time::Duration = std::time::Duration::from_micros(1);

impl Oracle {
    /// The store took messages and says when they are due.
    pub(crate) fn stored(&mut self, messages: &[DelayedMessage], dues: &[Timestamp], now: Timestamp) {
        self.version += 1;
        for (DelayedMessage { message, due }, stored) in messages.iter().zip(dues) {
            let Some(record) = self.letters.get_mut(&message.id) else { continue };
            let expected = match (&record.kept, due) {
                (Some(kept), _) => kept.due,
                (None, Due::At(instant)) => round_up(*instant, RESOLUTION),
                (None, Due::After(delay)) => round_up(now + *delay, RESOLUTION),
            };
            if record.kept.is_none() {
                // A client that got no answer stores again what was delivered meanwhile.
                record.excuses += u32::from(record.is_settled());
                record.refused = 0;
                record.kept = Some(Kept { due: expected, attempt: expected, since: now, failures: 0 });
            }
            if *stored != expected {
                self.violated("S3", now, format!("{} is due at {expected}, not {stored}", message.id));
            }
        }
    }

    /// A client was told that its message is stored.
    pub(crate) fn acknowledged(&mut self, id: &MessageId, due: Timestamp, now: Timestamp) {
        let Some(record) = self.letters.get_mut(id) else { return };
        record.acknowledged = true;
        if record.kept.is_none() && !record.is_settled() {
            self.violated("S1", now, format!("{id}, due at {due}, is acknowledged and not stored"));
        }
    }

    pub(crate) fn next_claim(&mut self) -> u64 {
        self.last_claim += 1;
        self.last_claim
    }

    /// A process got a claim on messages.
    pub(crate) fn granted(&mut self, life: &Life, claim: u64, messages: &[DueMessage], now: Timestamp) {
        self.version += u64::from(!messages.is_empty());
        let until = now + self.plan.lease;
        for due in messages {
            let id = &due.message.id;
            let Some(record) = self.letters.get_mut(id) else { continue };
            let before = record.lease.replace(Lease { claim, life: life.number, until });
            let kept = record.kept.as_ref();
            let attempt = kept.map_or(Timestamp::MAX, |kept| kept.attempt);
            let failures = kept.map_or(0, |kept| kept.failures);
            let known = (kept.map(|kept| kept.due), failures) == (Some(due.due), due.failures);
            if attempt > now {
                self.violated("S3", now, format!("{id} is fetched by {life} before {attempt}"));
            }
            if !known {
                self.violated("S5", now, format!("{id} is fetched as {due:?}, not as it was stored"));
            }
            let Some(lease) = before else { continue };
            if lease.is_valid(now) {
                self.violated("S4", now, format!("{id} is held until {} and is granted again", lease.until));
            }
            self.ran_out(id, lease, now);
        }
    }

    /// A claim ended without settling a message: in time or not.
    fn ran_out(&mut self, id: &MessageId, lease: Lease, now: Timestamp) {
        self.counters.count(Injected::LeaseRanOut);
        self.excuse(id);
        if self.lives.get(&lease.life).is_some_and(|holder| holder.should_have_renewed(lease.claim)) {
            self.violated("S6", now, format!("{id} was held by a healthy process that did not renew"));
        }
    }

    /// Messages were removed, or not, under a claim.
    pub(crate) fn removed(&mut self, claim: u64, ids: &[MessageId], held: &[bool], now: Timestamp) {
        for (id, held) in ids.iter().zip(held) {
            if !self.settles(claim, id, *held, now) {
                continue;
            }
            let Some(record) = self.letters.get_mut(id) else { continue };
            record.kept = None;
            if record.delivered == 0 && record.moved == 0 {
                self.violated("S7", now, format!("{id} is removed before it is anywhere else"));
            }
        }
    }

    /// Failures were counted, or not, under a claim.
    pub(crate) fn counted(&mut self, claim: u64, failures: &[Failure], held: &[bool], now: Timestamp) {
        for (Failure { id, retry_after, .. }, held) in failures.iter().zip(held) {
            if !self.settles(claim, id, *held, now) {
                continue;
            }
            let Some(record) = self.letters.get_mut(id) else { continue };
            if let Some(kept) = &mut record.kept {
                kept.failures += 1;
                kept.attempt = round_up(now + *retry_after, RESOLUTION);
            }
            if record.nature == Nature::Healthy {
                self.violated("S9", now, format!("a failure of {id} is counted, which is healthy"));
            }
        }
    }

    /// Whether what a claim did to a message has an effect; the answer must be true to the ghost lease.
    fn settles(&mut self, claim: u64, id: &MessageId, answer: bool, now: Timestamp) -> bool {
        let Some(record) = self.letters.get_mut(id) else { return false };
        let holds = record.held(now).is_some_and(|lease| lease.claim == claim);
        if holds && answer {
            record.lease = None;
        }
        if holds != answer {
            self.violated("S5", now, format!("claim {claim} on {id}: held {holds}, answered {answer}"));
        }
        self.version += 1;
        answer
    }

    /// Messages were given back.
    pub(crate) fn released(&mut self, claim: u64, ids: &[MessageId], now: Timestamp) {
        self.version += 1;
        for id in ids {
            self.end_lease(claim, id, now);
        }
    }

    /// A claim goes on for another term.
    pub(crate) fn renewed(&mut self, claim: u64, now: Timestamp) {
        let until = now + self.plan.lease;
        let of_claim = |lease: &&mut Lease| lease.claim == claim;
        let leases = self.letters.values_mut().filter_map(|record| record.lease.as_mut()).filter(of_claim);
        let mut lost = false;
        for lease in leases {
            lost |= !lease.is_valid(now);
            lease.until = until;
        }
        if lost {
            self.violated("S5", now, format!("claim {claim} was lost and is renewed"));
        }
    }

    /// A claim ended in order.
    pub(crate) fn committed(&mut self, claim: u64, ids: &[MessageId], now: Timestamp) {
        self.released(claim, ids, now);
    }

    /// A claim was dropped: what it held is free again, whether it was sent or not.
    pub(crate) fn dropped(&mut self, claim: u64, ids: &[MessageId], now: Timestamp) {
        self.version += 1;
        for id in ids {
            if self.end_lease(claim, id, now) {
                self.excuse(id);
            }
        }
    }

    /// A claim is out of everybody's reach.
    pub(crate) fn buried(&mut self, claim: u64) {
        for conduct in self.lives.values_mut() {
            conduct.bury(claim);
        }
    }

    /// Answers whether the claim still held the message.
    fn end_lease(&mut self, claim: u64, id: &MessageId, now: Timestamp) -> bool {
        let lease = self.letters.get_mut(id).map(|record| &mut record.lease);
        let Some(lease) = lease.and_then(|lease| lease.take_if(|lease| lease.claim == claim)) else {
            return false;
        };
        let valid = lease.is_valid(now);
        if !valid {
            self.ran_out(id, lease, now);
        }
        valid
    }

    /// S13: the answers to a cancellation are true.
    pub(crate) fn cancelled(&mut self, ids: &[MessageId], answers: &[Cancellation], now: Timestamp) {
        self.version += 1;
        for (id, answer) in ids.iter().zip(answers) {
            let expected = match self.standing(id, now) {
                Standing::Absent => Cancellation::NotFound,
                Standing::Held => Cancellation::InFlight,
                Standing::Free => Cancellation::Cancelled,
            };
            if *answer != expected {
                self.violated("S13", now, format!("cancelling {id} is {expected:?}, answered {answer:?}"));
            }
            if let Some(record) = self.letters.get_mut(id)
                && *answer == Cancellation::Cancelled
            {
                record.cancelled = true;
                record.kept = None;
                record.lease = None;
            }
        }
    }

    /// S13: the answer to a rescheduling is true.
    pub(crate) fn rescheduled(&mut self, id: &MessageId, answer: Rescheduling, now: Timestamp) {
        self.version += 1;
        let standing = self.standing(id, now);
        let fits = matches!(
            (standing, answer),
            (Standing::Absent, Rescheduling::NotFound)
                | (Standing::Held, Rescheduling::InFlight)
                | (Standing::Free, Rescheduling::Rescheduled(_))
        );
        if !fits {
            self.violated("S13", now, format!("{id} is {standing:?}, but rescheduling says {answer:?}"));
        }
        let record = self.letters.get_mut(id);
        if let (Some(kept), Rescheduling::Rescheduled(due)) =
            (record.and_then(|record| record.kept.as_mut()), answer)
        {
            *kept = Kept { due, attempt: due, since: now, failures: kept.failures };
        }
    }

    fn standing(&self, id: &MessageId, now: Timestamp) -> Standing {
        match self.letters.get(id) {
            Some(record) if record.kept.is_some() => {
                if record.held(now).is_some() {
                    Standing::Held
                } else {
                    Standing::Free
                }
            }
            _ => Standing::Absent,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Standing {
    Absent,
    Held,
    Free,
}
