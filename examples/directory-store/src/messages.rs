//! The messages of one endpoint: on the disk, and in memory in the order in which they are tried.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use postdate_core::{Address, DueMessage, Failure, MessageId};

use crate::{
    content::{self, Content, Head},
    error::Result,
    layout::{Folder, Found, Label, Position},
    wake::Watchers,
};

/// When a message is tried next, and its place in the order of storing.
pub(crate) type Key = (Timestamp, Position);

/// Every change is made on the disk first, then here.
#[derive(Debug)]
pub(crate) struct Messages {
    folder: Folder,
    order: BTreeMap<Key, Entry>,
    keys: BTreeMap<MessageId, Key>,
    next_batch: u64,
    last_claim: u64,
    pub(crate) watchers: Watchers,
}

/// A message without headers and body.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) label: Label,
    pub(crate) id: MessageId,
    pub(crate) destination: Address,
    pub(crate) asked: Option<Timestamp>,
    pub(crate) body_bytes: usize,
    pub(crate) last_error: Option<String>,
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    /// By the claim of this number. A number is never used twice: that is the fence against stale claims.
    Held(u64),
    /// Its file is damaged. It is shown, can be cancelled, and is in nobody's way.
    Unreadable,
}

impl Messages {
    /// Reads what is on the disk.
    pub(crate) fn load(folder: Folder) -> Result<Self> {
        let found = folder.load()?;
        let next_batch = found.iter().map(|found| found.label.position.batch + 1).max().unwrap_or(1);
        let (order, keys) = (BTreeMap::new(), BTreeMap::new());
        let mut messages =
            Self { folder, order, keys, next_batch, last_claim: 0, watchers: Watchers::default() };
        for Found { label, head, last_error } in found {
            let head = head.and_then(|head| match messages.keys.contains_key(&head.id) {
                true => Err(content::damage(format!("another message has the id {}", head.id))),
                false => Ok(head),
            });
            messages.enter(match head {
                Ok(head) => Entry::waiting(label, head, last_error),
                Err(error) if content::is_damage(&error) => Entry::unreadable(label, &error.to_string()),
                Err(error) => return Err(error.into()),
            });
        }
        Ok(messages)
    }

    /// All in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.order.values()
    }

    pub(crate) fn get(&self, id: &MessageId) -> Option<&Entry> {
        self.order.get(self.keys.get(id)?)
    }

    /// Headers and body of a message; `None` if its file is damaged.
    pub(crate) fn read(&self, entry: &Entry) -> Result<Option<DueMessage>> {
        let Label { due, failures, .. } = entry.label;
        match self.folder.read(&entry.label) {
            Ok(message) => Ok(Some(DueMessage { message, due, failures })),
            Err(error) if content::is_damage(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores messages with these due times, all or none.
    pub(crate) fn insert(&mut self, new: &[(Content<'_>, Timestamp)]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let batch = self.next_batch;
        self.next_batch += 1;
        let labelled: Vec<_> = (0..)
            .zip(new)
            .map(|(place, &(content, due))| {
                (Label { position: Position { batch, place }, attempt: due, due, failures: 0 }, content)
            })
            .collect();
        self.folder.commit(batch, &labelled)?;
        for (label, content) in labelled {
            self.enter(Entry::waiting(label, Head::of(content), None));
            self.watchers.announce(label.attempt);
        }
        Ok(())
    }

    /// Removes for good those that are in a state which `may` be removed, and says which were.
    pub(crate) fn remove(&mut self, ids: &[MessageId], may: impl Fn(State) -> bool) -> Result<Vec<bool>> {
        let mut changed = BTreeSet::new();
        let mut removed = Vec::with_capacity(ids.len());
        for id in ids {
            let entry = self.get(id).filter(|entry| may(entry.state));
            removed.push(entry.is_some());
            if let Some(&Entry { label, .. }) = entry {
                self.folder.delete(&label)?;
                self.take_out(id);
                changed.insert(label.position.batch);
            }
        }
        self.folder.sync_batches(&changed)?;
        Ok(removed)
    }

    /// Counts failures of what a claim holds, and says which those were.
    pub(crate) fn fail(&mut self, claim: u64, failures: &[Failure], now: Timestamp) -> Result<Vec<bool>> {
        let mut changed = BTreeSet::new();
        let mut counted = Vec::with_capacity(failures.len());
        for Failure { id, retry_after, error } in failures {
            let entry = self.get(id).filter(|entry| entry.state == State::Held(claim));
            counted.push(entry.is_some());
            if let Some(&Entry { label, .. }) = entry {
                let attempt = now.checked_add(*retry_after).unwrap_or(Timestamp::MAX);
                let failed = Label { attempt, failures: label.failures.saturating_add(1), ..label };
                let error: String = error.chars().take(Failure::MAX_ERROR_CHARS).collect();
                self.folder.note_error(label.position, &error)?;
                self.relabel(id, failed, Some(error))?;
                changed.insert(label.position.batch);
            }
        }
        self.folder.sync_batches(&changed)?;
        self.announce_free(failures.iter().map(|failure| &failure.id));
        Ok(counted)
    }

    /// Gives a message that nobody holds another due time.
    pub(crate) fn reschedule(&mut self, id: &MessageId, due: Timestamp) -> Result<()> {
        let Some(&Entry { label, .. }) = self.get(id) else { return Ok(()) };
        let last_error = self.get(id).and_then(|entry| entry.last_error.clone());
        self.relabel(id, Label { attempt: due, due, ..label }, last_error)?;
        self.folder.sync_batches(&BTreeSet::from([label.position.batch]))?;
        self.watchers.announce(due);
        Ok(())
    }

    /// Begins a claim on these. It is in memory only: with the process it is gone.
    pub(crate) fn hold<'a>(&mut self, ids: impl Iterator<Item = &'a MessageId>) -> u64 {
        self.last_claim += 1;
        let claim = self.last_claim;
        ids.for_each(|id| self.set_state(id, State::Held(claim)));
        claim
    }

    /// Ends a claim's hold on these, where it has one.
    pub(crate) fn give_back<'a>(&mut self, claim: u64, ids: impl Iterator<Item = &'a MessageId>) {
        for id in ids {
            if self.get(id).is_some_and(|entry| entry.state == State::Held(claim)) {
                self.set_state(id, State::Waiting);
                self.announce_free(std::iter::once(id));
            }
        }
    }

    /// Puts a message out of the way of the others.
    pub(crate) fn quarantine(&mut self, id: &MessageId) {
        self.set_state(id, State::Unreadable);
        if let Some(entry) = self.entry(id) {
            entry.last_error = Some("its file is damaged or gone".to_owned());
        }
    }

    fn entry(&mut self, id: &MessageId) -> Option<&mut Entry> {
        self.order.get_mut(self.keys.get(id)?)
    }

    fn set_state(&mut self, id: &MessageId, state: State) {
        if let Some(entry) = self.entry(id) {
            entry.state = state;
        }
    }

    fn relabel(&mut self, id: &MessageId, label: Label, last_error: Option<String>) -> Result<()> {
        let Some(entry) = self.get(id) else { return Ok(()) };
        self.folder.relabel(&entry.label, &label)?;
        if let Some(entry) = self.take_out(id) {
            self.enter(Entry { label, last_error, state: State::Waiting, ..entry });
        }
        Ok(())
    }

    fn enter(&mut self, entry: Entry) {
        self.keys.insert(entry.id.clone(), entry.key());
        self.order.insert(entry.key(), entry);
    }

    fn take_out(&mut self, id: &MessageId) -> Option<Entry> {
        self.order.remove(&self.keys.remove(id)?)
    }

    fn announce_free<'a>(&mut self, ids: impl Iterator<Item = &'a MessageId>) {
        for id in ids {
            if let Some(entry) = self.get(id).filter(|entry| entry.state == State::Waiting) {
                let attempt = entry.label.attempt;
                self.watchers.announce(attempt);
            }
        }
    }
}

impl Entry {
    fn waiting(label: Label, head: Head, last_error: Option<String>) -> Self {
        let Head { id, destination, asked, body_bytes, .. } = head;
        Self { label, id, destination, asked, body_bytes, last_error, state: State::Waiting }
    }

    /// An entry for a file that does not say what it is. By this id people can cancel it.
    fn unreadable(label: Label, why: &str) -> Self {
        let Position { batch, place } = label.position;
        Self {
            label,
            id: MessageId::new(format!("unreadable {batch}/{place}")).expect("it is short and plain"),
            destination: Address::new("(unreadable)").expect("it is short and plain"),
            asked: None,
            body_bytes: 0,
            last_error: Some(why.chars().take(Failure::MAX_ERROR_CHARS).collect()),
            state: State::Unreadable,
        }
    }

    pub(crate) fn key(&self) -> Key {
        (self.label.attempt, self.label.position)
    }
}
