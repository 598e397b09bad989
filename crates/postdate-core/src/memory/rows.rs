//! The delayed messages of one endpoint, in the order in which they are tried.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{place::Hold, watch::Watchers};
use crate::{Failure, MessageId, OutgoingMessage};

/// When a message is tried next, and its place in the order of storing.
pub(super) type Key = (Timestamp, u64);

/// Every change that makes a message free to fetch is announced to the watchers.
#[derive(Default)]
pub(super) struct Rows {
    by_attempt: BTreeMap<Key, Row>,
    keys: BTreeMap<MessageId, Key>,
    last_stored: u64,
    pub(super) watchers: Watchers,
}

pub(super) struct Row {
    pub(super) message: OutgoingMessage,
    pub(super) due: Timestamp,
    /// The absolute due time that the sender gave, to tell a repeated call from a conflict.
    pub(super) asked: Option<Timestamp>,
    pub(super) failures: u32,
    pub(super) last_error: Option<String>,
    pub(super) hold: Option<Hold>,
}

impl Rows {
    pub(super) fn insert(&mut self, message: OutgoingMessage, due: Timestamp, asked: Option<Timestamp>) {
        self.last_stored += 1;
        let key = (due, self.last_stored);
        self.keys.insert(message.id.clone(), key);
        let row = Row { message, due, asked, failures: 0, last_error: None, hold: None };
        self.by_attempt.insert(key, row);
        self.watchers.announce(due);
    }

    pub(super) fn get(&self, id: &MessageId) -> Option<(Key, &Row)> {
        let key = *self.keys.get(id)?;
        Some((key, self.by_attempt.get(&key)?))
    }

    /// All in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Row)> {
        self.by_attempt.iter().map(|(key, row)| (*key, row))
    }

    /// Those whose time has come, in order.
    pub(super) fn due(&mut self, now: Timestamp) -> impl Iterator<Item = &mut Row> {
        self.by_attempt.range_mut(..=(now, u64::MAX)).map(|(_, row)| row)
    }

    /// Whether the claim holds the message and its lease is not over.
    pub(super) fn is_held_by(&self, claim: u64, id: &MessageId, now: Timestamp) -> bool {
        let hold = self.get(id).and_then(|(_, row)| row.hold);
        hold.is_some_and(|hold| hold.claim == claim && hold.is_valid(now))
    }

    pub(super) fn renew(&mut self, id: &MessageId, until: Timestamp) {
        if let Some(hold) = self.get_mut(id).and_then(|row| row.hold.as_mut()) {
            hold.until = until;
        }
    }

    /// Ends the claim's hold on the message, if there is one.
    pub(super) fn give_back(&mut self, claim: u64, id: &MessageId) {
        let Some(&key) = self.keys.get(id) else { return };
        let Some(row) = self.by_attempt.get_mut(&key) else { return };
        if row.hold.is_some_and(|hold| hold.claim == claim) {
            row.hold = None;
            self.watchers.announce(key.0);
        }
    }

    pub(super) fn remove(&mut self, id: &MessageId) {
        if let Some(key) = self.keys.remove(id) {
            self.by_attempt.remove(&key);
        }
    }

    pub(super) fn fail(&mut self, id: &MessageId, error: &str, retry: Timestamp) {
        if let Some(row) = self.get_mut(id) {
            row.failures = row.failures.saturating_add(1);
            row.last_error = Some(error.chars().take(Failure::MAX_ERROR_CHARS).collect());
            row.hold = None;
            self.try_next_at(id, retry);
        }
    }

    pub(super) fn reschedule(&mut self, id: &MessageId, due: Timestamp) {
        if let Some(row) = self.get_mut(id) {
            row.due = due;
            self.try_next_at(id, due);
        }
    }

    fn get_mut(&mut self, id: &MessageId) -> Option<&mut Row> {
        self.by_attempt.get_mut(self.keys.get(id)?)
    }

    fn try_next_at(&mut self, id: &MessageId, attempt: Timestamp) {
        let Some(key) = self.keys.get_mut(id) else { return };
        if let Some(row) = self.by_attempt.remove(key) {
            key.0 = attempt;
            self.by_attempt.insert(*key, row);
            self.watchers.announce(attempt);
        }
    }
}

impl Row {
    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        self.hold.is_some_and(|hold| hold.is_valid(now))
    }
}
