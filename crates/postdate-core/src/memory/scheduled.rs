//! Looking at delayed messages and changing one's mind.

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    place,
    rows::{Key, Row},
    store::{MemoryStore, resolve},
};
use crate::{
    Cancellation, Cursor, Due, Filter, ListQuery, Listing, MessageId, MessageState, Operation, Rescheduling,
    ScheduledMessage, ScheduledMessages, ScheduledSummary, Stats, StoreError, StoreErrorKind,
};

#[async_trait]
impl ScheduledMessages for MemoryStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        let mut contents = self.place.lock();
        let now = self.place.now();
        Ok(contents.rows(&self.endpoint).get(id).map(|((attempt, _), row)| ScheduledMessage {
            message: row.to_due_message(),
            state: row.state(now),
            next_attempt: attempt,
            last_error: row.last_error.clone(),
        }))
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        let after = query.after.as_ref().map(read_cursor).transpose()?;
        let mut contents = self.place.lock();
        let now = self.place.now();
        let mut rest = contents
            .rows(&self.endpoint)
            .iter()
            .filter(|(key, row)| after.is_none_or(|after| *key > after) && row.matches(&query.filter))
            .peekable();
        let mut messages = Vec::new();
        let mut last = None;
        for (key, row) in rest.by_ref().take(query.limit.get()) {
            messages.push(row.summary(key.0, now));
            last = Some(key);
        }
        let next = last.filter(|_| rest.peek().is_some()).map(write_cursor);
        Ok(Listing { messages, next })
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        let mut contents = self.place.lock();
        let rows = contents.rows(&self.endpoint);
        let now = self.place.now();
        let cancel = |id| match rows.get(id) {
            None => Cancellation::NotFound,
            Some((_, row)) if row.is_held(now) => Cancellation::InFlight,
            Some(_) => {
                rows.remove(id);
                Cancellation::Cancelled
            }
        };
        Ok(ids.iter().map(cancel).collect())
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        let mut contents = self.place.lock();
        let rows = contents.rows(&self.endpoint);
        let now = self.place.now();
        let due = resolve(due, now, Operation::Reschedule)?;
        Ok(match rows.get(id) {
            None => Rescheduling::NotFound,
            Some((_, row)) if row.is_held(now) => Rescheduling::InFlight,
            Some(_) => {
                rows.reschedule(id, due);
                Rescheduling::Rescheduled(due)
            }
        })
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let mut contents = self.place.lock();
        let rows = contents.rows(&self.endpoint);
        let now = self.place.now();
        let overdue = || rows.iter().take_while(|((attempt, _), _)| *attempt <= now);
        Ok(Stats {
            pending: count(rows.iter()),
            overdue: count(overdue()),
            in_flight: count(overdue().filter(|(_, row)| row.is_held(now))),
            failing: count(rows.iter().filter(|(_, row)| row.failures > 0)),
            oldest_overdue: overdue().map(|(_, row)| row.due).min(),
            next_due: rows.iter().map(|((attempt, _), _)| attempt).find(|attempt| *attempt > now),
            now,
        })
    }
}

impl Row {
    fn state(&self, now: Timestamp) -> MessageState {
        if self.is_held(now) { MessageState::InFlight } else { MessageState::Pending }
    }

    fn matches(&self, filter: &Filter) -> bool {
        filter.destination.as_ref().is_none_or(|destination| *destination == self.message.destination)
            && filter.id_prefix.as_ref().is_none_or(|prefix| self.message.id.as_str().starts_with(prefix))
            && filter.due_before.is_none_or(|end| self.due < end)
            && filter.due_from.is_none_or(|begin| self.due >= begin)
            && self.failures >= filter.min_failures
    }

    fn summary(&self, next_attempt: Timestamp, now: Timestamp) -> ScheduledSummary {
        ScheduledSummary {
            id: self.message.id.clone(),
            destination: self.message.destination.clone(),
            due: self.due,
            next_attempt,
            failures: self.failures,
            last_error: self.last_error.clone(),
            body_bytes: self.message.body.len() as u64,
            state: self.state(now),
        }
    }
}

fn count<T>(rows: impl Iterator<Item = T>) -> u64 {
    rows.count() as u64
}

fn write_cursor((attempt, stored): Key) -> Cursor {
    Cursor(format!("{}:{stored}", attempt.as_nanosecond()))
}

fn read_cursor(cursor: &Cursor) -> Result<Key, StoreError> {
    let key = cursor.0.split_once(':').and_then(|(attempt, stored)| {
        Some((Timestamp::from_nanosecond(attempt.parse().ok()?).ok()?, stored.parse().ok()?))
    });
    key.ok_or_else(|| {
        let detail = "the cursor was not made by this store; begin again without one";
        place::error(StoreErrorKind::Invalid, Operation::Query, detail)
    })
}
