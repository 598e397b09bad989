//! Storing, fetching, and waiting for what is due next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, DelayedMessage, DelayedMessageStore, Due, DueBatch, DueMessage, FetchDue, NextDue, Operation,
    StoreError, StoreErrorKind,
};

use crate::{
    claim::DirectoryClaim,
    content::{Content, MAX_MESSAGE_BYTES},
    endpoint::Endpoint,
    error::{Fault, Result},
    messages::{Messages, State},
    wake::Watcher,
};

/// A fetch ends when its messages are this large together, in bytes: memory is not to depend on the backlog.
const BATCH_BYTES: usize = 16 << 20;

/// A handle on the delayed messages of one endpoint.
#[derive(Debug)]
pub(crate) struct DirectoryStore {
    pub(crate) endpoint: Arc<Endpoint>,
    watcher: Arc<Watcher>,
}

impl DirectoryStore {
    pub(crate) fn new(endpoint: Arc<Endpoint>) -> Self {
        let watcher = endpoint.lock().watchers.join();
        Self { endpoint, watcher }
    }
}

#[async_trait]
impl DelayedMessageStore for DirectoryStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        let batch = messages.to_vec();
        self.endpoint.run(Operation::Store, move |messages| store(messages, &batch)).await
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        let (endpoint, limit) = (Arc::clone(&self.endpoint), request.limit.get());
        let except: BTreeSet<Address> = request.except.iter().cloned().collect();
        let fetch = move |messages: &mut Messages| {
            let now = Timestamp::now();
            let (due, contended) = free(messages, now, limit, &except)?;
            // The claim is made where the messages are taken: if nobody waits for the answer it is dropped, and
            // gives them back.
            let claim = Box::new(DirectoryClaim::new(endpoint, messages, &due));
            Ok(DueBatch { messages: due, claim, now, contended })
        };
        self.endpoint.run(Operation::FetchDue, fetch).await
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        let (watcher, except) = (Arc::clone(&self.watcher), except.iter().cloned().collect::<BTreeSet<_>>());
        let look = move |messages: &mut Messages| {
            let mut waiting = messages
                .iter()
                .filter(|entry| entry.state == State::Waiting && !except.contains(&entry.destination));
            let due = waiting.next().map(|entry| entry.label.attempt);
            watcher.will_look_again(due);
            Ok(NextDue { due, now: Timestamp::now() })
        };
        self.endpoint.run(Operation::NextDue, look).await
    }

    async fn changed(&self) {
        self.watcher.changed().await;
    }
}

/// The instant that is stored for a due time. The resolution is that of the clock, so nothing is rounded.
pub(crate) fn resolve(due: Due, now: Timestamp) -> Result<Timestamp> {
    due.resolve(now).ok_or_else(|| {
        let detail = "the due time is beyond the end of time, the year 9999; choose less";
        Fault::new(StoreErrorKind::Invalid, detail)
    })
}

/// What is compared when a message is stored again.
fn asked(due: Due) -> Option<Timestamp> {
    match due {
        Due::At(at) => Some(at),
        Due::After(_) => None,
    }
}

/// Looks at all messages before it writes one.
fn store(messages: &mut Messages, batch: &[DelayedMessage]) -> Result<Vec<Timestamp>> {
    let now = Timestamp::now();
    let mut new = Vec::new();
    let mut seen = BTreeMap::new();
    let mut dues = Vec::with_capacity(batch.len());
    for DelayedMessage { message, due } in batch {
        if message.size() > MAX_MESSAGE_BYTES {
            let (id, size) = (&message.id, message.size());
            let detail = format!("message {id} has {size} bytes of at most {MAX_MESSAGE_BYTES}; store less");
            return Err(Fault::new(StoreErrorKind::TooLarge, detail));
        }
        let asked = asked(*due);
        let due = resolve(*due, now)?;
        let known = match messages.get(&message.id) {
            Some(entry) => {
                messages.read(entry)?.map(|there| (there.message == *message, entry.asked, entry.label.due))
            }
            None => seen.get(&message.id).map(|(there, asked, due)| (*there == message, *asked, *due)),
        };
        let is_new = messages.get(&message.id).is_none() && known.is_none();
        dues.push(match known {
            None if is_new => {
                seen.insert(&message.id, (message, asked, due));
                new.push((Content { message, asked }, due));
                due
            }
            // A delay is counted from another now each time: there is nothing to compare.
            Some((same, asked_then, due_then))
                if same && (asked.is_none() || asked_then.is_none() || asked == asked_then) =>
            {
                due_then
            }
            _ => {
                let detail = format!("{} is stored with other content; choose another id", message.id);
                return Err(Fault::new(StoreErrorKind::Conflict, detail));
            }
        });
    }
    messages.insert(&new)?;
    Ok(dues)
}

/// Due messages that nobody holds, and whether some are held.
fn free(
    messages: &mut Messages,
    now: Timestamp,
    limit: usize,
    except: &BTreeSet<Address>,
) -> Result<(Vec<DueMessage>, bool)> {
    let (mut due, mut bytes, mut damaged, mut contended) = (Vec::new(), 0, Vec::new(), false);
    for entry in messages.iter().take_while(|entry| entry.label.attempt <= now) {
        if due.len() == limit || bytes >= BATCH_BYTES {
            break;
        }
        match entry.state {
            _ if except.contains(&entry.destination) => {}
            State::Unreadable => {}
            State::Held(_) => contended = true,
            State::Waiting => match messages.read(entry)? {
                Some(message) => {
                    bytes += message.message.size();
                    due.push(message);
                }
                None => damaged.push(entry.id.clone()),
            },
        }
    }
    damaged.iter().for_each(|id| messages.quarantine(id));
    Ok((due, contended))
}
