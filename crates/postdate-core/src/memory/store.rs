//! Storing and fetching.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    claim::{Lease, MemoryClaim},
    place::{self, Hold, Place},
    rows::Row,
    watch::Watcher,
};
use crate::{
    Address, ClaimKind, DelayedMessage, DelayedMessageStore, Due, DueBatch, DueMessage, EndpointName,
    FetchDue, NextDue, Operation, StoreError, StoreErrorKind, TransactionMode, round_up,
};

#[derive(Debug)]
pub(super) struct MemoryStore {
    pub(super) place: Arc<Place>,
    pub(super) endpoint: EndpointName,
    mode: TransactionMode,
    watcher: Arc<Watcher>,
}

impl MemoryStore {
    pub(super) fn new(
        place: Arc<Place>,
        endpoint: EndpointName,
        mode: TransactionMode,
        watcher: Arc<Watcher>,
    ) -> Self {
        Self { place, endpoint, mode, watcher }
    }
}

#[async_trait]
impl DelayedMessageStore for MemoryStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        let mut contents = self.place.lock();
        let rows = contents.rows(&self.endpoint);
        let now = self.place.now();
        let mut new = BTreeMap::new();
        let mut stored = Vec::with_capacity(messages.len());
        for DelayedMessage { message, due } in messages {
            let id = &message.id;
            if message.size() > place::MAX_MESSAGE_BYTES {
                let detail =
                    format!("{id} has {} bytes of at most {}", message.size(), place::MAX_MESSAGE_BYTES);
                return Err(place::error(StoreErrorKind::TooLarge, Operation::Store, detail));
            }
            let due_at = resolve(*due, now, Operation::Store)?;
            let asked = asked(*due, due_at);
            let known = rows.get(id).map(|(_, row)| (&row.message, row.due, row.asked));
            stored.push(match known.or_else(|| new.get(id).copied()) {
                None => {
                    new.insert(id, (message, due_at, asked));
                    due_at
                }
                // An operator may have given it another due time since.
                Some((same, due_then, asked_then))
                    if same == message
                        && (asked.is_none() || asked_then.is_none() || asked == asked_then) =>
                {
                    due_then
                }
                Some(_) => {
                    let detail = format!("{id} is stored with other content; give this message another id");
                    return Err(place::error(StoreErrorKind::Conflict, Operation::Store, detail));
                }
            });
        }
        for (DelayedMessage { message, due }, due_at) in messages.iter().zip(&stored) {
            if rows.get(&message.id).is_none() {
                rows.insert(message.clone(), *due_at, asked(*due, *due_at));
            }
        }
        Ok(stored)
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        let taken = tokio::time::Instant::now().into_std();
        let mut contents = self.place.lock();
        let claim = contents.next_claim();
        let now = self.place.now();
        let until = self.place.lease_end(now);
        let mut messages = Vec::new();
        let mut contended = false;
        for row in contents.rows(&self.endpoint).due(now) {
            if messages.len() == request.limit.get() {
                break;
            }
            if request.except.contains(&row.message.destination) {
                continue;
            }
            if row.is_held(now) {
                contended = true;
                continue;
            }
            row.hold = Some(Hold { claim, until });
            messages.push(row.to_due_message());
        }
        let lease = Lease { place: Arc::clone(&self.place), endpoint: self.endpoint.clone(), claim };
        let held = messages.iter().map(|due| due.message.id.clone()).collect();
        let claim = Box::new(MemoryClaim::new(lease, held, taken, self.mode));
        Ok(DueBatch { messages, claim, now, contended })
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        let mut contents = self.place.lock();
        let now = self.place.now();
        let mut due: Option<Timestamp> = None;
        for ((attempt, _), row) in contents.rows(&self.endpoint).iter() {
            if except.contains(&row.message.destination) {
                continue;
            }
            let lease_end = row.hold.filter(|hold| hold.is_valid(now)).map(|hold| hold.until);
            if lease_end.is_some() && self.place.claims() == ClaimKind::Transaction {
                continue;
            }
            let free = lease_end.unwrap_or(attempt);
            due = Some(due.map_or(free, |due| due.min(free)));
            if lease_end.is_none() {
                // What comes later in order is tried later, and held beyond that if it is held.
                break;
            }
        }
        self.watcher.will_look_again(due);
        Ok(NextDue { due, now })
    }

    async fn changed(&self) {
        self.watcher.changed().await;
    }
}

impl Row {
    pub(super) fn to_due_message(&self) -> DueMessage {
        DueMessage { message: self.message.clone(), due: self.due, failures: self.failures }
    }
}

/// The due time that was asked for, where it is absolute: relative ones are not compared.
fn asked(due: Due, due_at: Timestamp) -> Option<Timestamp> {
    matches!(due, Due::At(_)).then_some(due_at)
}

/// The instant that is stored for a due time.
pub(super) fn resolve(due: Due, now: Timestamp, operation: Operation) -> Result<Timestamp, StoreError> {
    match due.resolve(now) {
        Some(instant) => Ok(round_up(instant, place::RESOLUTION)),
        None => Err(place::error(
            StoreErrorKind::Invalid,
            operation,
            "the due time is beyond the end of time; choose one before the year 10000",
        )),
    }
}
