//! What clients ask for and are told.

use jiff::Timestamp;

use super::{Judge, Record};
use crate::{Cancellation, Rescheduling, Wanted, later};

/// Where a message is, when somebody changes his mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Absent,
    Held,
    Free,
}

impl Judge {
    pub(super) fn attempted(&mut self, id: &str, record: Record, at: Timestamp) {
        if self.messages.insert(id.to_owned(), record).is_some() {
            self.violated("S2", at, format!("{id} is the id of two messages"));
        }
    }

    pub(super) fn stored(&mut self, id: &str, due: Timestamp, at: Timestamp) {
        self.check_due(id, due, at);
        let Some(record) = self.messages.get_mut(id) else { return };
        if record.kept.is_none() {
            // A client that got no answer stores again what was settled meanwhile.
            record.restored += u32::from(record.is_settled());
            record.attempts = 0;
            record.keep(due, 0, at);
        }
    }

    pub(super) fn acknowledged(&mut self, id: &str, due: Timestamp, at: Timestamp) {
        let sees_effects = self.sees_effects();
        if !sees_effects {
            self.check_due(id, due, at);
        }
        let Some(record) = self.messages.get_mut(id) else { return };
        record.acknowledged = true;
        if record.kept.is_some() || record.is_settled() {
            return;
        }
        if sees_effects {
            self.violated("S1", at, format!("{id}, due at {due}, is acknowledged and not stored"));
        } else if !record.unsure {
            record.keep(due, 0, at);
        }
    }

    /// S3: a due time is kept as it was wanted.
    fn check_due(&mut self, id: &str, due: Timestamp, at: Timestamp) {
        let Some(record) = self.messages.get(id) else {
            return self.violated("S2", at, format!("{id} is stored, which nobody ever sent"));
        };
        let (earliest, latest) = match (&record.kept, record.wanted) {
            (Some(kept), _) => (kept.due, kept.due),
            (None, Wanted::At(instant)) => (instant, instant),
            (None, Wanted::After(delay)) => match record.handed_over {
                Some(handed_over) => (later(handed_over, delay), self.latest_due(id, delay, at)),
                None => {
                    let from = if self.sees_effects() { at } else { record.attempted };
                    (later(from, delay), later(at, delay))
                }
            },
        };
        if due < self.rounded_up(earliest) || due > self.rounded_up(latest) {
            self.violated("S3", at, format!("{id} is due at {due}, not from {earliest} to {latest}"));
        }
    }

    /// S13: the answer to a cancellation is true.
    pub(super) fn cancelled(&mut self, id: &str, answer: Cancellation, at: Timestamp) {
        let expected = match self.standing(id, at) {
            Standing::Absent => Cancellation::NotFound,
            Standing::Held => Cancellation::InFlight,
            Standing::Free => Cancellation::Cancelled,
        };
        if answer != expected && self.sees_effects() {
            self.violated("S13", at, format!("cancelling {id} is {expected:?}, answered {answer:?}"));
        }
        if let Some(record) = self.messages.get_mut(id)
            && answer == Cancellation::Cancelled
        {
            record.cancelled = true;
            record.kept = None;
            record.lease = None;
        }
    }

    /// S13: the answer to a rescheduling is true.
    pub(super) fn rescheduled(&mut self, id: &str, answer: Rescheduling, at: Timestamp) {
        let standing = self.standing(id, at);
        let fits = match answer {
            Rescheduling::NotFound => standing == Standing::Absent,
            Rescheduling::InFlight => standing == Standing::Held,
            Rescheduling::Rescheduled(_) => standing == Standing::Free,
        };
        if !fits && self.sees_effects() {
            self.violated("S13", at, format!("{id} is {standing:?}, but rescheduling says {answer:?}"));
        }
        if let Some(record) = self.messages.get_mut(id)
            && let Some(failures) = record.kept.as_ref().map(|kept| kept.failures)
            && let Rescheduling::Rescheduled(due) = answer
        {
            record.keep(due, failures, at);
        }
    }

    fn standing(&self, id: &str, at: Timestamp) -> Standing {
        match self.messages.get(id) {
            Some(record) if record.kept.is_some() && record.held(at).is_some() => Standing::Held,
            Some(record) if record.kept.is_some() => Standing::Free,
            _ => Standing::Absent,
        }
    }
}
