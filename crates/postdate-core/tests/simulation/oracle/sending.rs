//! What reaches destinations and the error queue.

use jiff::Timestamp;
use postdate_core::{Address, DispatchError, DispatchErrorKind, MessageId, OutgoingMessage, error_queue};

use super::{Injected, Life, Nature, Oracle, Record};

impl Oracle {
    /// A process begins to send. It must hold what it sends (L11), which must be due (S3) and not be taken
    /// back (S13).
    pub(crate) fn sending(&mut self, life: &Life, messages: &[OutgoingMessage], now: Timestamp) {
        for OutgoingMessage { id, .. } in messages {
            let Some(record) = self.letters.get(id) else {
                self.violated("S2", now, format!("nobody ever sent {id}"));
                continue;
            };
            let holds = record.held(now).is_some_and(|lease| lease.life == life.number);
            let early = record.kept.as_ref().filter(|kept| kept.attempt > now).map(|kept| kept.attempt);
            let cancelled = record.cancelled && record.kept.is_none();
            if !holds {
                self.violated("L11", now, format!("{life} sends {id}, which it does not hold any more"));
            }
            if let Some(attempt) = early {
                self.violated("S3", now, format!("{life} sends {id} before {attempt}"));
            }
            if cancelled {
                self.violated("S13", now, format!("{life} sends {id}, which was cancelled"));
            }
        }
    }

    /// A destination has the message.
    pub(crate) fn delivered(&mut self, message: &OutgoingMessage, now: Timestamp) {
        let Some(record) = self.letters.get_mut(&message.id) else { return };
        record.delivered += 1;
        if record.message != *message {
            self.violated("S2", now, format!("{} was changed on the way", message.id));
        }
        self.arrived(&message.id, now);
    }

    /// The error queue has a copy of the message.
    pub(crate) fn moved(&mut self, copy: &OutgoingMessage, now: Timestamp) {
        let Some(record) = self.letters.get_mut(&copy.id) else { return };
        record.moved += 1;
        let faults = faults_of_move(record, copy, self.plan.retries);
        for (promise, what) in faults {
            self.violated(promise, now, format!("{} in the error queue: {what}", copy.id));
        }
        self.arrived(&copy.id, now);
    }

    /// S6: it is the first time, or there is an excuse.
    fn arrived(&mut self, id: &MessageId, now: Timestamp) {
        let Some(record) = self.letters.get_mut(id) else { return };
        let (times, excused) = (record.delivered + record.moved, 1 + record.excuses + record.open);
        record.open += 1;
        if times > 1 {
            self.counters.count(Injected::Duplicate);
        }
        if times > excused {
            self.violated("S6", now, format!("{id} arrives for the {times}th time without an excuse"));
        }
    }

    /// A process was told what became of what it sent.
    pub(crate) fn told(
        &mut self,
        life: &Life,
        messages: &[OutgoingMessage],
        outcomes: &[Result<(), DispatchError>],
        now: Timestamp,
    ) {
        for (message, outcome) in messages.iter().zip(outcomes) {
            let kind = outcome.as_ref().err().map(DispatchError::kind);
            if let Some(record) = self.letters.get_mut(&message.id) {
                match kind {
                    None => record.open = record.open.saturating_sub(1),
                    Some(DispatchErrorKind::Unavailable) => {}
                    Some(_) => record.refused += 1,
                }
            }
        }
        self.reached(life, messages, outcomes, now);
    }

    /// The dispatcher panicked over a message. That is an attempt if nothing else was sent with it.
    pub(crate) fn panicked(&mut self, id: &MessageId, alone: bool) {
        if let Some(record) = self.letters.get_mut(id) {
            record.refused += u32::from(alone);
        }
    }

    fn reached(
        &mut self,
        life: &Life,
        messages: &[OutgoingMessage],
        outcomes: &[Result<(), DispatchError>],
        now: Timestamp,
    ) {
        let unavailable = |outcome: &Result<(), DispatchError>| {
            outcome.as_ref().is_err_and(|error| error.kind() == DispatchErrorKind::Unavailable)
        };
        let Some(destination) = messages.first().map(|message| message.destination.clone()) else { return };
        let failed = outcomes.iter().any(unavailable);
        if !outcomes.iter().all(unavailable) {
            self.conduct(life).reached(&destination, now);
        }
        if failed {
            self.unreached(life, &destination, now);
        }
    }

    /// A process could not reach a destination.
    pub(crate) fn unreached(&mut self, life: &Life, destination: &Address, now: Timestamp) {
        self.conduct(life).unreached(destination, now);
    }
}

/// S9 and S10: only what failed by its own fault goes to the error queue, after all its attempts, with
/// everything that is known of it.
fn faults_of_move(record: &Record, copy: &OutgoingMessage, retries: u32) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    let expected = match record.nature {
        Nature::Healthy => return vec![("S9", "it is healthy".to_owned())],
        Nature::Homeless => 1,
        Nature::Poison | Nature::Panics => retries + 1,
    };
    let attempts = record.refused;
    let exact = !record.is_excused() && record.nature != Nature::Homeless;
    let most = expected + record.excuses + record.open;
    if exact && attempts != expected || record.nature != Nature::Homeless && attempts > most {
        faults.push(("S10", format!("after {attempts} attempts, not {expected}")));
    }
    match error_queue::restore(copy) {
        Err(error) => faults.push(("S10", error.to_string())),
        Ok(failed) => {
            if failed.original != record.message {
                faults.push(("S2", "it was changed on the way".to_owned()));
            }
            if !record.is_excused() && failed.attempts != attempts {
                faults.push(("S10", format!("it says {} attempts, not {attempts}", failed.attempts)));
            }
            let homeless = failed.reason == "no-destination";
            if homeless != (record.nature == Nature::Homeless) {
                faults.push(("S10", format!("its reason is {}", failed.reason)));
            }
        }
    }
    faults
}
