//! What reaches destinations and the error queue.

use jiff::Timestamp;

use super::{Judge, record::Record};
use crate::{Outcome, Refusal, Rules, Way};

impl Judge {
    /// A process begins to send. It must hold what it sends (L11), which must be due (S3) and not be taken back
    /// (S13), nor be too late to be sent (L7).
    pub(super) fn sending(&mut self, process: u32, ids: &[String], way: Way, at: Timestamp) {
        for id in ids {
            let Some(record) = self.messages.get(id) else {
                self.violated("S2", at, format!("nobody ever sent {id}"));
                continue;
            };
            let leapt = record.leapt.contains(&process);
            let in_store = record.held(at).is_some_and(|lease| lease.process == process);
            let holds = in_store || way == Way::ErrorQueue && self.holds_in_queue(process, id, at);
            let early = record.kept.as_ref().filter(|kept| kept.attempt > at).map(|kept| kept.attempt);
            let cancelled = record.cancelled && record.kept.is_none();
            let too_late = self.is_too_late(record) && way == Way::Destination;
            if !holds && !leapt {
                let what = format!("process {process} sends {id}, which it does not hold any more");
                self.violated("L11", at, what);
            }
            if let Some(attempt) = early
                && !leapt
            {
                self.violated("S3", at, format!("process {process} sends {id} before {attempt}"));
            }
            if cancelled && !leapt {
                self.violated("S13", at, format!("process {process} sends {id}, which was cancelled"));
            }
            if too_late && !leapt {
                self.violated("L7", at, format!("process {process} sends {id}, which is too late"));
            }
        }
    }

    /// Whether it was too late to be sent when it was fetched.
    fn is_too_late(&self, record: &Record) -> bool {
        let lateness = record.lease.zip(record.kept.as_ref());
        let lateness = lateness.map(|(lease, kept)| lease.granted.duration_since(kept.due));
        lateness.zip(self.rules.maximum_lateness).is_some_and(|(lateness, maximum)| lateness > maximum)
    }

    pub(super) fn delivered(&mut self, id: &str, content: u64, at: Timestamp) {
        let Some(record) = self.known_arrival(id, at) else { return };
        record.delivered += 1;
        let changed = record.content != content;
        let holder = record.held(at).filter(|lease| !record.leapt.contains(&lease.process));
        let early = holder.zip(record.kept.as_ref()).is_some_and(|(_, kept)| kept.attempt > at);
        if changed {
            self.violated("S2", at, format!("{id} was changed on the way"));
        }
        if early {
            self.violated("S3", at, format!("{id} arrives before it is due"));
        }
        self.arrived(id, at);
    }

    pub(super) fn moved(
        &mut self,
        id: &str,
        content: Option<u64>,
        attempts: u32,
        reason: &str,
        at: Timestamp,
    ) {
        let rules = self.rules.clone();
        let Some(record) = self.known_arrival(id, at) else { return };
        record.moved += 1;
        let mut faults = faults_of_move(record, attempts, reason, &rules);
        match content {
            None => faults.push(("S10", "it cannot be restored".to_owned())),
            Some(content) if content != record.content => {
                faults.push(("S2", "it was changed on the way".to_owned()));
            }
            Some(_) => {}
        }
        for (promise, what) in faults {
            self.violated(promise, at, format!("{id} in the error queue: {what}"));
        }
        self.arrived(id, at);
    }

    /// S2: what arrives was sent by somebody.
    fn known_arrival(&mut self, id: &str, at: Timestamp) -> Option<&mut Record> {
        if !self.messages.contains_key(id) {
            self.counts.unexpected += 1;
            self.violated("S2", at, format!("{id} arrives, which nobody ever sent"));
        }
        self.messages.get_mut(id)
    }

    /// S6: it is the first time, or there is an excuse.
    fn arrived(&mut self, id: &str, at: Timestamp) {
        let exactly_once = self.is_exactly_once();
        let Some(record) = self.messages.get_mut(id) else { return };
        // What could not be stored never was in a transaction of the store.
        let excused = if exactly_once && !record.unstorable { 0 } else { record.excuses + record.open };
        let again = if record.unstorable { record.copies.saturating_sub(1) } else { 0 };
        let (times, permitted) = (record.arrivals(), 1 + record.restored + excused + again);
        record.open += 1;
        if times > permitted {
            self.violated("S6", at, format!("{id} arrives for the {times}th time without an excuse"));
        }
    }

    pub(super) fn refused(&mut self, id: &str, why: Refusal) {
        let Some(record) = self.messages.get_mut(id) else { return };
        match why {
            Refusal::Rejected => record.rejections += 1,
            Refusal::NoDestination => record.homeless = true,
            Refusal::NotStorable => record.unstorable = true,
        }
    }

    pub(super) fn told(&mut self, outcomes: &[(String, Outcome)]) {
        for (id, outcome) in outcomes {
            let Some(record) = self.messages.get_mut(id) else { continue };
            match outcome {
                Outcome::Delivered => record.open = record.open.saturating_sub(1),
                Outcome::Unavailable => {}
                Outcome::Refused => record.attempts += 1,
            }
        }
    }
}

/// S9 and S10: only what failed by its own fault goes to the error queue, after all its attempts, and is said to
/// be there for what it is.
fn faults_of_move(record: &Record, said: u32, reason: &str, rules: &Rules) -> Vec<(&'static str, String)> {
    if reason == "expired" {
        let late = record.expired;
        return if late { Vec::new() } else { vec![("S9", "it is not too late".to_owned())] };
    }
    if reason == "not-storable" {
        return match (record.unstorable, said) {
            (false, _) => vec![("S9", "it can be stored".to_owned())],
            (true, 1) => Vec::new(),
            (true, _) => vec![("S10", format!("it says {said} attempts, not 1"))],
        };
    }
    if record.rejections == 0 && !record.homeless {
        return vec![("S9", "nobody refused it".to_owned())];
    }
    let mut faults = Vec::new();
    let (attempts, expected) = (record.attempts, if record.homeless { 1 } else { rules.retries + 1 });
    // A message that was too late once was counted without an attempt.
    let exact = !record.is_excused() && !record.expired;
    let most = expected + record.excuses + record.open + record.restored;
    let wrong = if exact { attempts != expected } else { attempts > most };
    if wrong && !record.homeless {
        faults.push(("S10", format!("after {attempts} attempts, not {expected}")));
    }
    if exact && said != attempts {
        faults.push(("S10", format!("it says {said} attempts, not {attempts}")));
    }
    if (reason == "no-destination") != record.homeless {
        faults.push(("S10", format!("its reason is {reason}")));
    }
    faults
}
