//! Fetching, and what a claim may do.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use postdate_core::{Address, ClaimKind, MessageId, StoreErrorKind, TransactionMode};

use super::{
    super::event::{Answer, Batch, ClaimNumber},
    Attempt, Change, Company, Hold, Model, Row,
};

/// The place of a message in the order of fetching.
type Place = (Timestamp, u64);

impl Model {
    pub(super) fn fetch(
        &mut self,
        claim: ClaimNumber,
        handle: u64,
        limit: usize,
        except: &[Address],
        batch: &Batch,
        company: Company<'_>,
    ) -> Result<()> {
        self.time.tell(batch.now)?;
        let since = matches!(self.kind, ClaimKind::Lease(_)).then_some(self.time.now());
        self.claims.insert(claim, Hold { since, ..Hold::default() });
        let is_barred = self.dispatcher.is_some_and(|dispatcher| dispatcher != handle);
        if is_barred && batch.messages.is_empty() && batch.contended {
            return Ok(());
        }
        if self.kind == ClaimKind::Process {
            self.dispatcher.get_or_insert(handle);
        }
        ensure!(batch.messages.len() <= limit, "{} messages were fetched", batch.messages.len());
        let last = self.take(claim, except, batch, company)?;
        self.nothing_was_left(limit, except, batch, last, company)?;
        if matches!(company, Company::Alone) {
            self.contention_is_told(claim, limit, except, batch, is_barred)?;
        }
        Ok(())
    }

    /// Each message was free, came at its time, in order and as it was stored. Answers with the last one's place.
    ///
    /// What was moved while it was fetched may have come at the place that it had before, from a server that looks
    /// first and locks then.
    fn take(
        &mut self,
        claim: ClaimNumber,
        except: &[Address],
        batch: &Batch,
        company: Company<'_>,
    ) -> Result<Option<Place>> {
        let is_transaction = self.kind == ClaimKind::Transaction;
        let mut last = None;
        for came in &batch.messages {
            let id = &came.message.id;
            let row = self.rows.get_mut(id).with_context(|| format!("{id} was fetched and is not there"))?;
            ensure!(row.holder.is_none(), "{id} was fetched and is held");
            ensure!(!except.contains(&row.message.destination), "{id} was fetched and was excepted");
            let earliest = row.attempt.earliest();
            ensure!(earliest <= batch.now, "{id} was fetched at {} and is due at {earliest}", batch.now);
            ensure!(came.message == row.message, "{id} came as {:?}", came.message);
            ensure!(
                (came.due, came.failures) == (row.due, row.failures),
                "{id} came with due time {} and {} failures, not {} and {}",
                came.due,
                came.failures,
                row.due,
                row.failures
            );
            if let Some(place) = row.place().filter(|_| !(is_transaction && company.moves(id))) {
                ensure!(last < Some(place), "{id} came out of order");
                last = Some(place);
            }
            row.holder = Some(claim);
        }
        Ok(last)
    }

    fn nothing_was_left(
        &self,
        limit: usize,
        except: &[Address],
        batch: &Batch,
        last: Option<Place>,
        company: Company<'_>,
    ) -> Result<()> {
        let sure = self.time.now().min(batch.now);
        let may_end_early = matches!(company, Company::Overlapping(_)) && !batch.messages.is_empty();
        let free = self.due(sure, except).filter(|(_, row)| row.holder.is_none());
        let excused =
            |id: &MessageId| company.excuses(id, &batch.messages, self.kind) || self.was_let_go(id, company);
        for (id, row) in free.filter(|(id, _)| !excused(id)) {
            ensure!(row.place() > last, "{id} was passed over");
            ensure!(
                batch.messages.len() == limit || may_end_early,
                "{id} is due and free, and was not fetched"
            );
        }
        Ok(())
    }

    fn contention_is_told(
        &self,
        claim: ClaimNumber,
        limit: usize,
        except: &[Address],
        batch: &Batch,
        is_barred: bool,
    ) -> Result<()> {
        let is_others = |row: &Row| row.holder.is_some_and(|holder| holder != claim);
        let passed_held = self.due(self.time.now(), except).any(|(_, row)| is_others(row));
        if passed_held && batch.messages.len() < limit {
            ensure!(batch.contended, "others hold what is due, and this was not told");
        }
        if batch.contended {
            let any = self.rows.values().any(is_others);
            ensure!(any || is_barred, "contended, it was told, and nobody holds anything");
        }
        Ok(())
    }

    /// The messages for other destinations whose attempt is at this time or earlier.
    fn due(&self, time: Timestamp, except: &[Address]) -> impl Iterator<Item = (&MessageId, &Row)> {
        self.rows.iter().filter(move |(_, row)| {
            row.attempt.known().is_some_and(|attempt| attempt <= time)
                && !except.contains(&row.message.destination)
        })
    }

    pub(super) fn change_all(
        &mut self,
        claim: ClaimNumber,
        changes: Vec<(&MessageId, Change)>,
        answer: &Answer<Vec<bool>>,
    ) -> Result<()> {
        let is_lost = self.hold(claim).lost.is_some();
        let wanted: Vec<_> = changes.into_iter().map(|(id, change)| self.change(claim, id, change)).collect();
        self.end_if_settled(claim);
        match answer {
            Ok(answers) => {
                ensure!(*answers == wanted, "the answers were {answers:?}, not {wanted:?}");
                Ok(())
            }
            Err(refusal) if is_lost && refusal.kind == StoreErrorKind::ClaimLost => Ok(()),
            Err(refusal) => bail!("{refusal}"),
        }
    }

    pub(super) fn release(
        &mut self,
        claim: ClaimNumber,
        ids: &[MessageId],
        answer: &Answer<()>,
    ) -> Result<()> {
        for id in ids.iter().filter(|id| self.is_unsettled(claim, id)).collect::<Vec<_>>() {
            if self.kind == ClaimKind::Transaction {
                self.hold(claim).given_back.insert(id.clone());
            } else {
                self.give_back(claim, id);
            }
        }
        self.end_if_settled(claim);
        let lost = &mut self.hold(claim).lost;
        lost.iter_mut().for_each(|lost| lost.retain(|id| !ids.contains(id)));
        if lost.is_some() { may_be_lost(answer) } else { Ok(answer.clone()?) }
    }

    pub(super) fn renew(&mut self, claim: ClaimNumber, answer: &Answer<()>) -> Result<()> {
        let now = self.time.now();
        let hold = self.hold(claim);
        match &hold.lost {
            None => {
                hold.since = hold.since.map(|_| now);
                Ok(answer.clone()?)
            }
            Some(lost) if lost.is_empty() => may_be_lost(answer),
            Some(_) => is_lost(answer),
        }
    }

    /// Where other calls overlap, what is given back, failed or not, is an event of its own.
    pub(super) fn commit(
        &mut self,
        claim: ClaimNumber,
        answer: &Answer<()>,
        company: Company<'_>,
    ) -> Result<()> {
        let Hold { staged, lost, .. } = std::mem::take(self.hold(claim));
        if lost.is_some() {
            self.end(claim);
            return if staged.is_empty() { may_be_lost(answer) } else { is_lost(answer) };
        }
        self.note_let_go(claim);
        let is_alone = matches!(company, Company::Alone);
        for (id, change) in staged {
            self.make(&id, change);
            if let Some(failed) = self.rows.get_mut(&id).filter(|_| !is_alone) {
                failed.holder = Some(claim);
            }
        }
        if is_alone {
            self.end(claim);
        }
        Ok(answer.clone()?)
    }

    /// Gives back what the claim holds, and forgets the claim.
    pub(super) fn end(&mut self, claim: ClaimNumber) {
        self.let_go_of_all(claim);
        self.claims.remove(&claim);
    }

    /// Does what the claim has settled, if being dropped does it, and gives back the rest.
    fn let_go_of_all(&mut self, claim: ClaimNumber) {
        let Hold { staged, .. } = std::mem::take(self.hold(claim));
        self.note_let_go(claim);
        if self.mode != TransactionMode::TransactionScope {
            staged.into_iter().for_each(|(id, change)| self.make(&id, change));
        }
        for id in self.held_by(claim) {
            self.give_back(claim, &id);
        }
    }

    /// Those who look while a transaction ends may see a part as it was before and a part as it is then.
    fn note_let_go(&mut self, claim: ClaimNumber) {
        if self.kind == ClaimKind::Transaction {
            self.let_go.extend(self.held_by(claim));
        }
    }

    /// A transaction with nothing left to settle is over.
    fn end_if_settled(&mut self, claim: ClaimNumber) {
        let ends = self.kind == ClaimKind::Transaction && self.mode != TransactionMode::TransactionScope;
        if ends && !self.held_by(claim).iter().any(|id| self.is_unsettled(claim, id)) {
            self.let_go_of_all(claim);
        }
    }

    pub(super) fn end_leases(&mut self, kept: Option<ClaimNumber>) {
        let numbers: Vec<_> = self.claims.keys().copied().filter(|number| Some(*number) != kept).collect();
        for claim in numbers {
            let lost: BTreeSet<_> = self.held_by(claim).into_iter().collect();
            lost.iter().for_each(|id| self.give_back(claim, id));
            self.hold(claim).lost.get_or_insert(lost);
        }
    }

    fn change(&mut self, claim: ClaimNumber, id: &MessageId, change: Change) -> bool {
        if self.rows.get(id).is_none_or(|row| row.holder != Some(claim)) || !self.is_unsettled(claim, id) {
            return false;
        }
        if self.mode == TransactionMode::TransactionScope || self.kind == ClaimKind::Transaction {
            self.hold(claim).staged.insert(id.clone(), change);
        } else {
            self.make(id, change);
        }
        true
    }

    /// Whether the claim has done nothing with the message yet that waits for its end.
    fn is_unsettled(&self, claim: ClaimNumber, id: &MessageId) -> bool {
        let waits = |hold: &Hold| hold.staged.contains_key(id) || hold.given_back.contains(id);
        !self.claims.get(&claim).is_some_and(waits)
    }

    fn make(&mut self, id: &MessageId, change: Change) {
        match change {
            Change::Remove => drop(self.rows.remove(id)),
            Change::Fail { error, attempt } => {
                if let Some(row) = self.rows.get_mut(id) {
                    row.failures += 1;
                    row.last_error = Some(error);
                    row.attempt = attempt;
                    row.holder = None;
                }
            }
        }
    }

    fn give_back(&mut self, claim: ClaimNumber, id: &MessageId) {
        if let Some(row) = self.rows.get_mut(id) {
            row.holder.take_if(|holder| *holder == claim);
        }
    }

    fn hold(&mut self, claim: ClaimNumber) -> &mut Hold {
        self.claims.entry(claim).or_default()
    }
}

impl Row {
    fn place(&self) -> Option<Place> {
        match self.attempt {
            Attempt::At(time) => Some((time, self.stored)),
            Attempt::Retry { .. } => None,
        }
    }
}

fn may_be_lost(answer: &Answer<()>) -> Result<()> {
    match answer {
        Err(refusal) if refusal.kind != StoreErrorKind::ClaimLost => bail!("{refusal}"),
        _ => Ok(()),
    }
}

fn is_lost(answer: &Answer<()>) -> Result<()> {
    match answer {
        Ok(()) => bail!("a claim that was lost was not refused"),
        Err(_) => may_be_lost(answer),
    }
}
