//! Looking at the store as a whole.

use jiff::{SignedDuration, Timestamp};

use super::{Judge, record::Record};
use crate::later;

impl Judge {
    /// Everything is where it should be (S1), and nothing is there for too long (L1, L3).
    pub fn audit(&mut self, at: Timestamp, holds: impl Fn(&str) -> bool) {
        let (exactly_once, sees_effects) = (self.is_exactly_once(), self.sees_effects());
        let mut found = Vec::new();
        for (id, record) in &mut self.messages {
            let held = holds(id);
            // It was stored, and its sender died before he was told.
            record.unsure |= !sees_effects && !record.acknowledged && !record.is_settled();
            if record.unsure && !held {
                record.kept = None;
            } else if record.unsure && record.kept.is_none() {
                let due = record.attempted;
                record.keep(due, 0, at);
            }
            if record.kept.is_some() != held {
                found.push(("S1", format!("{id}: the store and the record of its effects disagree")));
            }
            if record.is_lost() {
                found.push(("S1", format!("{id} is lost")));
            }
            if exactly_once && held && record.arrivals() > record.restored {
                found.push(("S14", format!("{id} has arrived and is in the store")));
            }
        }
        for (id, record) in &self.messages {
            if let Some((promise, bound)) = self.overdue(record, at) {
                let what = format!("{id} is still in the store, {bound:#} after it should be gone");
                found.push((promise, what));
            }
        }
        found.extend(self.overdue_in_queue(at));
        found.into_iter().for_each(|(promise, what)| self.violated(promise, at, what));
    }

    /// The promise that is broken by a message still being in the store, and within what it should be gone.
    fn overdue(&self, record: &Record, at: Timestamp) -> Option<(&'static str, SignedDuration)> {
        let kept = record.kept.as_ref()?;
        let from = kept.due.max(kept.since);
        if let (Some(healed), Some(bound)) = (self.healed, self.rules.converges_within)
            && at > later(from.max(healed), bound)
        {
            return Some(("L1", bound));
        }
        let patience = record.patience?;
        (at > later(from, patience) && record.delivered == 0).then_some(("L3", patience))
    }
}
