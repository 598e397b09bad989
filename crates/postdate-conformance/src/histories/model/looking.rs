//! What is shown of the messages, and when the next one is due.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use postdate_core::{
    Address, ClaimKind, Filter, MessageId, MessageState, NextDue, ScheduledMessage, ScheduledSummary, Stats,
};

use super::{Attempt, Model, Row};

/// A lease that ends so much later than it should is not a lease of its term.
const LATE: Duration = Duration::from_secs(10);

impl Model {
    pub(super) fn look(&mut self, id: &MessageId, seen: Option<&ScheduledMessage>) -> Result<()> {
        let (row, seen) = match (self.rows.get(id), seen) {
            (None, None) => return Ok(()),
            (Some(row), Some(seen)) => (row, seen),
            (row, seen) => bail!("{id} was shown as {seen:?}, and it is {row:?}"),
        };
        let shown =
            (&seen.message.message, seen.message.due, seen.message.failures, &seen.last_error, seen.state);
        let is = (&row.message, row.due, row.failures, &row.last_error, row.state());
        ensure!(shown == is, "{id} was shown as {shown:?}, and it is {is:?}");
        match row.attempt {
            Attempt::At(attempt) => ensure!(
                seen.next_attempt == attempt,
                "{id} was shown to be tried at {}, not at {attempt}",
                seen.next_attempt
            ),
            Attempt::Retry { after, .. } => {
                let earliest = row.attempt.earliest();
                ensure!(
                    seen.next_attempt >= earliest,
                    "{id} is tried again at {}, which is before {earliest}",
                    seen.next_attempt
                );
                let reckoned = self.reckoned(seen.next_attempt, after);
                self.time.reckoned_from(reckoned);
            }
        }
        if let Some(row) = self.rows.get_mut(id) {
            row.attempt = Attempt::At(seen.next_attempt);
        }
        Ok(())
    }

    pub(super) fn list(&self, filter: &Filter, lines: &[ScheduledSummary]) -> Result<()> {
        ensure!(
            lines.is_sorted_by_key(|line| line.next_attempt),
            "the list is not in the order of attempts: {lines:?}"
        );
        let mut shown: BTreeMap<_, _> = lines.iter().map(|line| (&line.id, line)).collect();
        ensure!(shown.len() == lines.len(), "a message is listed twice: {lines:?}");
        for (id, row) in self.rows.iter().filter(|(_, row)| row.matches(filter)) {
            let Some(line) = shown.remove(id) else { bail!("{id} is not listed") };
            let wanted = row.summary();
            ensure!(*line == wanted, "listed as {line:?}, and it is {wanted:?}");
        }
        ensure!(shown.is_empty(), "listed without cause: {shown:?}");
        Ok(())
    }

    pub(super) fn count(&mut self, stats: &Stats) -> Result<()> {
        let before = self.time.now();
        self.time.tell(stats.now)?;
        let count = |rows: &mut dyn Iterator<Item = &Row>| rows.count() as u64;
        let failing = count(&mut self.rows.values().filter(|row| row.failures > 0));
        ensure!(
            (stats.pending, stats.failing) == (self.rows.len() as u64, failing),
            "{stats:?}, and {} are there, {failing} of them failing",
            self.rows.len()
        );
        let held = count(&mut self.rows.values().filter(|row| row.holder.is_some()));
        ensure!(stats.in_flight <= held, "{} in flight, and {held} are held", stats.in_flight);
        let attempts = || self.rows.values().map(|row| (row.attempt.earliest(), row.due));
        if attempts().any(|(attempt, _)| before < attempt && attempt <= stats.now) {
            // It fell due about now: before or after the counting.
            return Ok(());
        }
        let overdue = || attempts().filter(|(attempt, _)| *attempt <= stats.now);
        let wanted = (
            overdue().count() as u64,
            overdue().map(|(_, due)| due).min(),
            attempts().map(|(attempt, _)| attempt).filter(|attempt| *attempt > stats.now).min(),
        );
        let counted = (stats.overdue, stats.oldest_overdue, stats.next_due);
        ensure!(counted == wanted, "overdue, oldest and next are {counted:?}, not {wanted:?}");
        Ok(())
    }

    pub(super) fn next_due(&mut self, except: &[Address], next: &NextDue) -> Result<()> {
        self.time.tell(next.now)?;
        let rows = || self.rows.values().filter(|row| !except.contains(&row.message.destination));
        let unclear = rows().any(|row| row.attempt.known().is_none());
        let free = rows().filter(|row| row.holder.is_none()).map(|row| row.attempt.earliest()).min();
        let leases = || rows().filter_map(|row| self.lease_end(row));
        match next.due {
            None => {
                ensure!(free.is_none() && leases().next().is_none(), "nothing is due next, and {free:?} is")
            }
            Some(_) if unclear => {}
            Some(due) if Some(due) == free => {
                let longest = due.saturating_sub(LATE)?;
                ensure!(leases().all(|end| end >= longest), "{due} is next, and a lease ends before");
            }
            Some(due) => {
                let window = |end: Timestamp| end <= due && due <= end.saturating_add(LATE).unwrap_or(end);
                ensure!(
                    free.is_none_or(|free| free > due) && leases().any(window),
                    "{due} is next, and it should be {free:?}"
                );
            }
        }
        Ok(())
    }

    /// When the lease on a message ends at the earliest.
    fn lease_end(&self, row: &Row) -> Option<Timestamp> {
        let ClaimKind::Lease(term) = self.kind else { return None };
        let since = self.claims.get(&row.holder?)?.since?;
        since.checked_add(term).ok()
    }
}

impl Row {
    fn state(&self) -> MessageState {
        if self.holder.is_some() { MessageState::InFlight } else { MessageState::Pending }
    }

    fn matches(&self, filter: &Filter) -> bool {
        filter.destination.as_ref().is_none_or(|destination| *destination == self.message.destination)
            && filter.id_prefix.as_ref().is_none_or(|prefix| self.message.id.as_str().starts_with(prefix))
            && filter.due_before.is_none_or(|end| self.due < end)
            && filter.due_from.is_none_or(|begin| self.due >= begin)
            && self.failures >= filter.min_failures
    }

    fn summary(&self) -> ScheduledSummary {
        ScheduledSummary {
            id: self.message.id.clone(),
            destination: self.message.destination.clone(),
            due: self.due,
            next_attempt: self.attempt.earliest(),
            failures: self.failures,
            last_error: self.last_error.clone(),
            body_bytes: self.message.body.len() as u64,
            state: self.state(),
        }
    }
}
