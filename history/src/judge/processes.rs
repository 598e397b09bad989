//! What befalls processes and the clock.

use jiff::Timestamp;

use super::Judge;

impl Judge {
    /// What it held is free if it was held by the process alone, and will be when the leases end otherwise.
    pub(super) fn died(&mut self, process: u32, at: Timestamp) {
        self.troubled.insert(process);
        let sees_effects = self.sees_effects();
        let own = self.claims.iter().filter(|(_, claim)| claim.process == process);
        let ids: Vec<(u64, String)> =
            own.flat_map(|(number, claim)| claim.ids.iter().map(|id| (*number, id.clone()))).collect();
        for (claim, id) in ids {
            let Some(record) = self.messages.get_mut(&id) else { continue };
            // What it did last it may not have written down.
            record.unsure |= !sees_effects;
            if record.lease.is_some_and(|lease| lease.claim == claim && lease.until.is_none()) {
                self.end_lease(claim, &id, at);
                self.excuse(&id);
            }
        }
    }

    /// L12: nothing is held by a process that has stopped.
    pub(super) fn stopped(&mut self, process: u32, at: Timestamp) {
        let own = self.claims.iter().filter(|(_, claim)| claim.process == process && !claim.buried);
        let held = |(claim, id): &(&u64, &String)| {
            let record = self.messages.get(*id);
            record.and_then(|record| record.held(at)).is_some_and(|lease| lease.claim == **claim)
        };
        let left = own.flat_map(|(number, claim)| claim.ids.iter().map(move |id| (number, id))).filter(held);
        let left = left.map(|(_, id)| id).chain(self.left_in_queue(process, at));
        let left: Vec<String> = left.cloned().collect();
        if !left.is_empty() {
            self.violated("L12", at, format!("process {process} has stopped and holds {left:?}"));
        }
    }

    /// L9: leases may be over early or last longer, and what was due may not be due any more.
    pub(super) fn clock_leapt(&mut self, at: Timestamp) {
        self.clock_leapt_over_queue(at);
        for record in self.messages.values_mut() {
            record.leapt.extend(record.lease.map(|lease| lease.process));
            let free = record.lease.and_then(|lease| lease.until).unwrap_or(at);
            if let Some(kept) = &mut record.kept {
                kept.since = at.max(kept.attempt).max(free);
            }
        }
    }

    fn excuse(&mut self, id: &str) {
        if let Some(record) = self.messages.get_mut(id) {
            record.excuses += 1;
        }
    }
}
