//! Looking at delayed messages and changing one's mind.

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Cancellation, Cursor, Due, Filter, ListQuery, Listing, MessageId, MessageState, Operation, Rescheduling,
    ScheduledMessage, ScheduledMessages, ScheduledSummary, Stats, StoreError, StoreErrorKind,
};

use crate::{
    error::{Fault, Result},
    layout::Position,
    messages::{Entry, Key, Messages, State},
    store::{DirectoryStore, resolve},
};

#[async_trait]
impl ScheduledMessages for DirectoryStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        let id = id.clone();
        let get = move |messages: &mut Messages| {
            let Some(entry) = messages.get(&id) else { return Ok(None) };
            Ok(messages.read(entry)?.map(|message| ScheduledMessage {
                message,
                state: entry.state.shown(),
                next_attempt: entry.label.attempt,
                last_error: entry.last_error.clone(),
            }))
        };
        self.endpoint.run(Operation::Query, get).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        let query = query.clone();
        self.endpoint.run(Operation::Query, move |messages| list(messages, &query)).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        let ids = ids.to_vec();
        let cancel = move |messages: &mut Messages| {
            let removed = messages.remove(&ids, |state| !matches!(state, State::Held(_)))?;
            let answer = |(id, removed)| match removed {
                true => Cancellation::Cancelled,
                false if messages.get(id).is_some() => Cancellation::InFlight,
                false => Cancellation::NotFound,
            };
            Ok(ids.iter().zip(removed).map(answer).collect())
        };
        self.endpoint.run(Operation::Cancel, cancel).await
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        let id = id.clone();
        let reschedule = move |messages: &mut Messages| {
            let due = resolve(due, Timestamp::now())?;
            match messages.get(&id).map(|entry| entry.state) {
                None => Ok(Rescheduling::NotFound),
                Some(State::Held(_)) => Ok(Rescheduling::InFlight),
                Some(_) => messages.reschedule(&id, due).map(|()| Rescheduling::Rescheduled(due)),
            }
        };
        self.endpoint.run(Operation::Reschedule, reschedule).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.endpoint.run(Operation::Query, |messages| Ok(stats(messages, Timestamp::now()))).await
    }
}

impl State {
    fn shown(self) -> MessageState {
        match self {
            Self::Held(_) => MessageState::InFlight,
            Self::Waiting | Self::Unreadable => MessageState::Pending,
        }
    }
}

impl Entry {
    fn matches(&self, filter: &Filter) -> bool {
        filter.destination.as_ref().is_none_or(|destination| *destination == self.destination)
            && filter.id_prefix.as_ref().is_none_or(|prefix| self.id.as_str().starts_with(prefix))
            && filter.due_before.is_none_or(|end| self.label.due < end)
            && filter.due_from.is_none_or(|begin| self.label.due >= begin)
            && self.label.failures >= filter.min_failures
    }

    fn summary(&self) -> ScheduledSummary {
        ScheduledSummary {
            id: self.id.clone(),
            destination: self.destination.clone(),
            due: self.label.due,
            next_attempt: self.label.attempt,
            failures: self.label.failures,
            last_error: self.last_error.clone(),
            body_bytes: self.body_bytes as u64,
            state: self.state.shown(),
        }
    }
}

fn list(messages: &Messages, query: &ListQuery) -> Result<Listing> {
    let after = query.after.as_ref().map(read_cursor).transpose()?;
    let mut rest = messages
        .iter()
        .filter(|entry| after.is_none_or(|after| entry.key() > after) && entry.matches(&query.filter))
        .peekable();
    let page: Vec<&Entry> = rest.by_ref().take(query.limit.get()).collect();
    let next = page.last().filter(|_| rest.peek().is_some()).map(|last| write_cursor(last.key()));
    Ok(Listing { messages: page.into_iter().map(Entry::summary).collect(), next })
}

/// What cannot be read is counted as pending, and as nothing else: it will never be due.
fn stats(messages: &Messages, now: Timestamp) -> Stats {
    let readable = || messages.iter().filter(|entry| entry.state != State::Unreadable);
    let overdue = || readable().take_while(|entry| entry.label.attempt <= now);
    let count = |entries: &mut dyn Iterator<Item = &Entry>| entries.count() as u64;
    Stats {
        pending: count(&mut messages.iter()),
        overdue: count(&mut overdue()),
        in_flight: count(&mut readable().filter(|entry| entry.state != State::Waiting)),
        failing: count(&mut messages.iter().filter(|entry| entry.label.failures > 0)),
        oldest_overdue: overdue().map(|entry| entry.label.due).min(),
        next_due: readable().map(|entry| entry.label.attempt).find(|attempt| *attempt > now),
        now,
    }
}

fn write_cursor((attempt, Position { batch, place }): Key) -> Cursor {
    Cursor(format!("directory:{}:{batch}:{place}", attempt.as_nanosecond()))
}

fn read_cursor(cursor: &Cursor) -> Result<Key> {
    let read = |text: &str| {
        let [attempt, batch, place] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
        let position = Position { batch: batch.parse().ok()?, place: place.parse().ok()? };
        Some((Timestamp::from_nanosecond(attempt.parse().ok()?).ok()?, position))
    };
    cursor.0.strip_prefix("directory:").and_then(read).ok_or_else(|| {
        let detail = "the cursor was not made by this store; begin again without one";
        Fault::new(StoreErrorKind::Invalid, detail)
    })
}
