//! What clients were told, and whether it is true in the end.
//!
//! It has a rule of its own for claims of which the server alone knows whether they still hold: the histories that
//! `postdate-history` judges know when each one ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Mutex,
};

use bytes::Bytes;
use jiff::Timestamp;
use postdate_core::{DelayedMessage, MessageId, QueuedMessage};

/// Messages that clients tried to store, and what they were told.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<MessageId, Entry>>);

#[derive(Debug)]
struct Entry {
    body: Bytes,
    /// When it is due, once that was acknowledged.
    due: Option<Timestamp>,
}

/// What is there in the end.
#[derive(Debug)]
pub(crate) struct Found {
    pub arrived: Vec<QueuedMessage>,
    pub pending: Vec<Pending>,
}

/// A message that is in the store.
#[derive(Debug)]
pub(crate) struct Pending {
    pub id: MessageId,
    pub body: Vec<u8>,
    pub failures: i32,
}

/// Numbers of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub acknowledged: usize,
    pub arrived: usize,
    /// Arrivals after the first.
    pub duplicates: usize,
    pub pending: usize,
}

impl Ledger {
    pub(crate) fn attempts(&self, DelayedMessage { message, .. }: &DelayedMessage) {
        let entry = Entry { body: message.body.clone(), due: None };
        assert!(self.0.lock().unwrap().insert(message.id.clone(), entry).is_none(), "one attempt is noted");
    }

    pub(crate) fn acknowledged(&self, id: &MessageId, due: Timestamp) {
        self.0.lock().unwrap().get_mut(id).unwrap().due = Some(due);
    }

    /// Nothing is lost, invented, changed, early, counted as failed, or both delivered and kept.
    pub(crate) fn judge(&self, found: &Found) -> Counts {
        let entries = self.0.lock().unwrap();
        let mut arrived = BTreeMap::<&MessageId, usize>::new();
        for QueuedMessage { message, enqueued, .. } in &found.arrived {
            *arrived.entry(&message.id).or_default() += 1;
            let entry = entries.get(&message.id).unwrap_or_else(|| panic!("nobody sent {}", message.id));
            assert_eq!(entry.body, message.body, "{} was changed on the way", message.id);
            assert!(entry.due.is_none_or(|due| due <= *enqueued), "{} arrived before its time", message.id);
        }
        let mut pending = BTreeSet::new();
        for Pending { id, body, failures } in &found.pending {
            let entry = entries.get(id).unwrap_or_else(|| panic!("nobody sent {id}, which is pending"));
            assert_eq!(entry.body, *body, "{id} was changed in the store");
            assert_eq!(*failures, 0, "an outage counted against {id}");
            assert!(pending.insert(id), "{id} is pending twice");
            assert!(!arrived.contains_key(id), "{id} has arrived, and will again");
        }
        let acknowledged = || entries.iter().filter(|(_, entry)| entry.due.is_some()).map(|(id, _)| id);
        let lost: Vec<_> =
            acknowledged().filter(|id| !arrived.contains_key(id) && !pending.contains(id)).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        Counts {
            acknowledged: acknowledged().count(),
            arrived: arrived.len(),
            duplicates: found.arrived.len() - arrived.len(),
            pending: pending.len(),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, arrived, duplicates, pending } = self;
        write!(
            f,
            "{acknowledged} acknowledged, {arrived} arrived, {duplicates} of them again, {pending} pending"
        )
    }
}
