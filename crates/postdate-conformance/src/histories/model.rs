//! What a store should answer: plain, pure, and with no other clock than what the store says.
//!
//! The model is told a call and its answer, and refuses what no right store would have answered. So it needs to
//! guess nothing that a store is free to choose, and calls that overlapped can be tried in every order.

mod claiming;
mod looking;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use postdate_core::{
    Cancellation, Capabilities, ClaimKind, DelayedMessage, Due, DueMessage, MessageId, OutgoingMessage,
    Rescheduling, StoreErrorKind, TransactionMode,
};

use super::{
    event::{Answer, ClaimNumber, Event},
    time::StoreTime,
};

/// The delayed messages of one endpoint, and who holds them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    kind: ClaimKind,
    resolution: Duration,
    mode: TransactionMode,
    time: StoreTime,
    rows: BTreeMap<MessageId, Row>,
    claims: BTreeMap<ClaimNumber, Hold>,
    /// The handle that has the right to dispatch, where one at a time has.
    dispatcher: Option<u64>,
    /// What the ends of transactions have freed or removed in this step.
    let_go: BTreeSet<MessageId>,
}

#[derive(Clone, Debug, PartialEq)]
struct Row {
    message: OutgoingMessage,
    due: Timestamp,
    /// The absolute due time that the sender gave.
    asked: Option<Timestamp>,
    attempt: Attempt,
    /// The place in the order of storing.
    stored: u64,
    failures: u32,
    last_error: Option<String>,
    holder: Option<ClaimNumber>,
}

/// When a message is tried next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Attempt {
    At(Timestamp),
    /// So long after a failure, which was not before this.
    Retry {
        earliest: Timestamp,
        after: Duration,
    },
}

/// What a claim did that is not done yet, or lost.
#[derive(Clone, Debug, Default, PartialEq)]
struct Hold {
    /// Since when by the store's clock at least, if it is a lease.
    since: Option<Timestamp>,
    /// Changes that are made when it ends.
    staged: BTreeMap<MessageId, Change>,
    /// What it gave back and keeps until it ends.
    given_back: BTreeSet<MessageId>,
    /// What it held when its lease ended.
    lost: Option<BTreeSet<MessageId>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Remove,
    Fail { error: String, attempt: Attempt },
}

/// Whether other calls were made at the same time, and which.
#[derive(Clone, Copy, Debug)]
pub(super) enum Company<'a> {
    Alone,
    Overlapping(&'a [Event]),
}

impl Model {
    pub(super) fn new(capabilities: Capabilities, mode: TransactionMode) -> Self {
        Self {
            kind: capabilities.claim,
            resolution: capabilities.resolution,
            mode,
            time: StoreTime::unknown(),
            rows: BTreeMap::new(),
            claims: BTreeMap::new(),
            dispatcher: None,
            let_go: BTreeSet::new(),
        }
    }

    /// Takes an event for true, or says why it cannot be.
    pub(super) fn accept(&mut self, event: &Event, company: Company<'_>) -> Result<()> {
        match event {
            Event::Stored { messages, answer } => self.store(messages, answer),
            Event::Fetched { claim, handle, limit, except, answer } => {
                let batch = answer.as_ref().map_err(Clone::clone)?;
                self.fetch(*claim, *handle, *limit, except, batch, company)
            }
            Event::Removed { claim, ids, answer } => {
                self.change_all(*claim, ids.iter().map(|id| (id, Change::Remove)).collect(), answer)
            }
            Event::Failed { claim, failures, answer } => {
                let earliest = self.time.now();
                let change = |after, error: &String| {
                    let attempt = Attempt::Retry { earliest, after };
                    Change::Fail { error: error.clone(), attempt }
                };
                let changes =
                    failures.iter().map(|failure| (&failure.id, change(failure.retry_after, &failure.error)));
                self.change_all(*claim, changes.collect(), answer)
            }
            Event::Released { claim, ids, answer } => self.release(*claim, ids, answer),
            Event::Renewed { claim, answer } => self.renew(*claim, answer),
            Event::Committed { claim, answer } => self.commit(*claim, answer, company),
            Event::Dropped { claim } => {
                self.end(*claim);
                Ok(())
            }
            Event::Cancelled { ids, answer } => self.cancel(ids, answer, company),
            Event::Rescheduled { id, due, answer } => self.reschedule(id, *due, answer),
            Event::Looked { id, answer } => self.look(id, answer.as_ref().map_err(Clone::clone)?.as_ref()),
            Event::Listed { filter, answer } => self.list(filter, answer.as_ref().map_err(Clone::clone)?),
            Event::Counted { answer } => self.count(answer.as_ref().map_err(Clone::clone)?),
            Event::NextDue { except, answer } => {
                self.next_due(except, answer.as_ref().map_err(Clone::clone)?)
            }
            Event::LeasesEnded { kept } => {
                self.end_leases(*kept);
                Ok(())
            }
            Event::Closed { handle } => {
                self.dispatcher.take_if(|dispatcher| dispatcher == handle);
                Ok(())
            }
        }
    }

    /// The step is over. Places in the order of storing are counted anew, so that models are equal that mean the same.
    pub(super) fn settle(&mut self) -> Result<()> {
        let mut rows: Vec<_> = self.rows.values_mut().collect();
        rows.sort_by_key(|row| row.stored);
        (0..).zip(rows).for_each(|(place, row)| row.stored = place);
        self.let_go.clear();
        self.time.settle()
    }

    /// Whether the store has to say the time before the step can end.
    pub(super) fn is_time_owed(&self) -> bool {
        self.time.is_owed()
    }

    /// The messages that a claim holds.
    pub(super) fn held_by(&self, claim: ClaimNumber) -> Vec<MessageId> {
        let held = self.rows.iter().filter(|(_, row)| row.holder == Some(claim));
        held.map(|(id, _)| id.clone()).collect()
    }

    /// The messages that nobody holds.
    pub(super) fn free(&self) -> Vec<MessageId> {
        let free = self.rows.iter().filter(|(_, row)| row.holder.is_none());
        free.map(|(id, _)| id.clone()).collect()
    }

    /// The messages whose next attempt the store has not told yet.
    pub(super) fn unclear(&self) -> Vec<MessageId> {
        let unclear = self.rows.iter().filter(|(_, row)| matches!(row.attempt, Attempt::Retry { .. }));
        unclear.map(|(id, _)| id.clone()).collect()
    }

    /// The messages whose time has not come.
    pub(super) fn waiting(&self) -> Vec<MessageId> {
        let waiting = self.rows.iter().filter(|(_, row)| row.attempt.earliest() > self.time.now());
        waiting.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn dispatcher(&self) -> Option<u64> {
        self.dispatcher
    }

    fn store(&mut self, messages: &[DelayedMessage], answer: &Answer<Vec<Timestamp>>) -> Result<()> {
        if let Ok(dues) = answer {
            ensure!(dues.len() == messages.len(), "{} due times for {}", dues.len(), messages.len());
        }
        let (mut rows, mut reasons, mut reckoned) = (self.rows.clone(), Vec::new(), Timestamp::MIN);
        for (i, DelayedMessage { message, due }) in messages.iter().enumerate() {
            let answered = answer.as_ref().ok().map(|dues| dues[i]);
            if due.resolve(self.time.now()).is_none() {
                reasons.push(StoreErrorKind::Invalid);
                continue;
            }
            match (rows.get(&message.id), answered) {
                (Some(row), _) if !row.is_the_same(message, *due) => reasons.push(StoreErrorKind::Conflict),
                (Some(row), Some(answered)) => ensure!(
                    answered == row.due,
                    "{} is there already, due at {}, and the answer was {answered}",
                    message.id,
                    row.due
                ),
                (None, Some(answered)) => {
                    reckoned = reckoned.max(self.resolved(*due, answered)?);
                    let place = rows.values().map(|row| row.stored + 1).max().unwrap_or(0);
                    rows.insert(message.id.clone(), Row::new(message, *due, answered, place));
                }
                (_, None) => {
                    // What is compared with it later in a batch that was refused.
                    rows.entry(message.id.clone())
                        .or_insert_with(|| Row::new(message, *due, Timestamp::MIN, 0));
                }
            }
        }
        match answer {
            Ok(_) => {
                ensure!(reasons.is_empty(), "stored, and not refused as {:?}", reasons[0]);
                self.rows = rows;
                self.time.reckoned_from(reckoned);
            }
            Err(refusal) => ensure!(reasons.contains(&refusal.kind), "{refusal}"),
        }
        Ok(())
    }

    fn cancel(
        &mut self,
        ids: &[MessageId],
        answer: &Answer<Vec<Cancellation>>,
        company: Company<'_>,
    ) -> Result<()> {
        let answers = answer.as_ref().map_err(Clone::clone)?;
        let mut wanted = Vec::with_capacity(ids.len());
        for (i, id) in ids.iter().enumerate() {
            wanted.push(match self.rows.get(id) {
                // One is looked at before, and another one after what happens to both in a transaction.
                _ if answers.get(i) == Some(&Cancellation::InFlight) && self.may_be_held(id, company) => {
                    Cancellation::InFlight
                }
                Some(_) if answers.get(i) == Some(&Cancellation::NotFound) && self.may_go(id, company) => {
                    Cancellation::NotFound
                }
                None => Cancellation::NotFound,
                Some(row) if row.holder.is_some() => Cancellation::InFlight,
                Some(_) => {
                    self.rows.remove(id);
                    Cancellation::Cancelled
                }
            });
        }
        ensure!(*answers == wanted, "cancelling was answered with {answers:?}, not with {wanted:?}");
        Ok(())
    }

    /// Whether a call may find that an overlapping one holds the message: not any more, or not yet.
    fn may_be_held(&self, id: &MessageId, company: Company<'_>) -> bool {
        self.was_let_go(id, company) || self.kind == ClaimKind::Transaction && company.fetches(id)
    }

    /// Whether a call may find that an overlapping one has taken the message away.
    fn may_go(&self, id: &MessageId, company: Company<'_>) -> bool {
        self.kind == ClaimKind::Transaction && company.takes_away(id)
    }

    /// Whether a call that overlapped with the end of a transaction may have met the message before it, though it met
    /// others after it.
    fn was_let_go(&self, id: &MessageId, company: Company<'_>) -> bool {
        matches!(company, Company::Overlapping(_)) && self.let_go.contains(id)
    }

    fn reschedule(&mut self, id: &MessageId, due: Due, answer: &Answer<Rescheduling>) -> Result<()> {
        let is_possible = due.resolve(self.time.now()).is_some();
        match (answer, self.rows.get_mut(id)) {
            (Err(refusal), _) if refusal.kind == StoreErrorKind::Invalid && !is_possible => Ok(()),
            (Err(refusal), _) => bail!("{refusal}"),
            (Ok(Rescheduling::NotFound), None) => Ok(()),
            (Ok(Rescheduling::InFlight), Some(row)) if row.holder.is_some() => Ok(()),
            (Ok(Rescheduling::Rescheduled(answered)), Some(row)) if row.holder.is_none() && is_possible => {
                (row.due, row.attempt) = (*answered, Attempt::At(*answered));
                let reckoned = self.resolved(due, *answered)?;
                self.time.reckoned_from(reckoned);
                Ok(())
            }
            (Ok(answer), row) => bail!("rescheduling was answered with {answer:?}, and it is {row:?}"),
        }
    }

    /// Whether this is the instant for a due time. Answers from which time it was reckoned.
    fn resolved(&self, due: Due, answered: Timestamp) -> Result<Timestamp> {
        let earliest = due.resolve(self.time.now()).unwrap_or(Timestamp::MAX);
        ensure!(answered >= earliest, "{due:?} became {answered}, which is before {earliest}");
        match due {
            Due::At(asked) => {
                let more = answered.duration_since(asked);
                ensure!(more.is_zero() || self.is_within_resolution(more), "{asked} became {answered}");
                Ok(Timestamp::MIN)
            }
            Due::After(delay) => Ok(self.reckoned(answered, delay)),
        }
    }

    /// The time from which a delay was reckoned at the earliest.
    fn reckoned(&self, instant: Timestamp, delay: Duration) -> Timestamp {
        let begin = instant.checked_sub(delay).unwrap_or(Timestamp::MIN);
        begin.checked_sub(self.resolution).unwrap_or(Timestamp::MIN)
    }

    fn is_within_resolution(&self, more: jiff::SignedDuration) -> bool {
        Duration::try_from(more).is_ok_and(|more| more < self.resolution)
    }
}

impl Company<'_> {
    /// Whether one of the calls fetches this message.
    fn fetches(self, id: &MessageId) -> bool {
        let Self::Overlapping(events) = self else { return false };
        let came = |came: &DueMessage| came.message.id == *id;
        events.iter().any(|event| match event {
            Event::Fetched { answer: Ok(batch), .. } => batch.messages.iter().any(came),
            _ => false,
        })
    }

    /// Whether one of the calls gives this message another time.
    fn moves(self, id: &MessageId) -> bool {
        let Self::Overlapping(events) = self else { return false };
        events.iter().any(|event| matches!(event, Event::Rescheduled { id: moved, .. } if moved == id))
    }

    /// Whether one of the calls removes this message, or may.
    fn takes_away(self, id: &MessageId) -> bool {
        let Self::Overlapping(events) = self else { return false };
        events.iter().any(|event| match event {
            Event::Cancelled { ids, answer: Ok(answers) } => ids
                .iter()
                .zip(answers)
                .any(|(other, answer)| other == id && *answer == Cancellation::Cancelled),
            Event::Removed { ids, .. } => ids.contains(id),
            Event::Committed { .. } => true,
            _ => false,
        })
    }

    /// Whether a fetch may pass over this message because another call is about it: a store may look for messages
    /// first and take them then. Of a batch that was stored it sees all or nothing, unless it looks several times in one
    /// transaction until it has enough.
    fn excuses(self, id: &MessageId, fetched: &[DueMessage], kind: ClaimKind) -> bool {
        let Self::Overlapping(events) = self else { return false };
        let came = |stored: &DelayedMessage| {
            kind != ClaimKind::Transaction && fetched.iter().any(|came| came.message.id == stored.message.id)
        };
        events.iter().any(|event| match event {
            Event::Stored { messages, .. } => {
                messages.iter().any(|stored| stored.message.id == *id) && !messages.iter().any(came)
            }
            Event::Failed { failures, .. } => failures.iter().any(|failure| failure.id == *id),
            Event::Removed { ids, .. } | Event::Released { ids, .. } | Event::Cancelled { ids, .. } => {
                ids.contains(id)
            }
            Event::Rescheduled { id: moved, .. } => moved == id,
            _ => false,
        })
    }
}

impl Row {
    fn new(message: &OutgoingMessage, due: Due, answered: Timestamp, stored: u64) -> Self {
        let asked = match due {
            Due::At(asked) => Some(asked),
            Due::After(_) => None,
        };
        Self {
            message: message.clone(),
            due: answered,
            asked,
            attempt: Attempt::At(answered),
            stored,
            failures: 0,
            last_error: None,
            holder: None,
        }
    }

    /// Due times are compared as they were asked for, and only where both were absolute.
    fn is_the_same(&self, message: &OutgoingMessage, due: Due) -> bool {
        let is_due_then = match (due, self.asked) {
            (Due::At(asks), Some(asked)) => asks == asked,
            _ => true,
        };
        self.message == *message && is_due_then
    }
}

impl Attempt {
    fn earliest(self) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Retry { earliest, after } => earliest.saturating_add(after).unwrap_or(Timestamp::MAX),
        }
    }

    fn known(self) -> Option<Timestamp> {
        match self {
            Self::At(time) => Some(time),
            Self::Retry { .. } => None,
        }
    }
}
