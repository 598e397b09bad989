//! A file with an endpoint and queues in it, and ways to look at what happens.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use jiff::SignedDuration;
use postdate::{
    Address, DelayedDelivery, Event, MessageId, Observer, QueuedMessage, Queues, Reason, ReceiverExt,
    sqlite::Sqlite,
};
use postdate_history::{Guarantee, Knowledge, Rules};
use tempfile::TempDir;

/// Long enough for a busy machine; nothing is expected to take so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Scene {
    folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("postdate.db")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file, opened as another process would.
    pub(crate) async fn open(&self) -> Sqlite {
        Sqlite::open(self.path()).await.unwrap()
    }

    /// The file with these queues in it.
    pub(crate) async fn open_with(&self, queues: &[&str]) -> Sqlite {
        let sqlite = self.open().await;
        for queue in queues {
            sqlite.queues().create(&address(queue)).await.unwrap();
        }
        sqlite
    }

    /// All that is in a queue.
    pub(crate) async fn queued(&self, queue: &str) -> Vec<QueuedMessage> {
        let queues = self.open().await.queues();
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page =
                queues.browse(&address(queue), after, NonZeroUsize::new(1_000).unwrap()).await.unwrap();
            let Some(last) = page.last() else { return all };
            after = last.position;
            all.extend(page);
        }
    }
}

/// How what happens on the file is judged.
pub(crate) fn rules(guarantee: Guarantee, retries: u32) -> Rules {
    Rules {
        guarantee,
        knowledge: Knowledge::Answers,
        retries,
        shortest_retry: SignedDuration::ZERO,
        resolution: SignedDuration::from_micros(1),
        maximum_lateness: None,
        converges_within: None,
    }
}

pub(crate) fn address(name: &str) -> Address {
    Address::new(name).unwrap()
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

pub(crate) fn ids(messages: &[QueuedMessage]) -> Vec<&str> {
    messages.iter().map(|queued| queued.message.id.as_str()).collect()
}

/// Takes the next message out of a queue.
pub(crate) async fn receive(sqlite: &Sqlite, queue: &str) -> QueuedMessage {
    let receiver = sqlite.queues().receiver(&address(queue)).await.unwrap();
    let received = tokio::time::timeout(PATIENCE, receiver.receive(NonZeroUsize::MIN)).await;
    let mut batch = received.expect("nothing arrived").unwrap();
    let message = batch.messages.remove(0);
    assert_eq!(batch.claim.complete(&[message.position]).await.unwrap(), [true]);
    message
}

/// Waits until `done` says so.
pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn all_settled(delivery: &DelayedDelivery) {
    eventually("settling all messages", async || delivery.stats().await.unwrap().pending == 0).await;
}

/// Remembers how often what happened.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    delivered: Mutex<BTreeMap<String, u32>>,
    words: Mutex<BTreeMap<&'static str, u32>>,
}

impl Diary {
    /// How often messages to `destination` were delivered.
    pub(crate) fn delivered(&self, destination: &str) -> u32 {
        self.delivered.lock().unwrap().get(destination).copied().unwrap_or(0)
    }

    /// How often something of this kind happened.
    pub(crate) fn count(&self, word: &str) -> u32 {
        self.words.lock().unwrap().get(word).copied().unwrap_or(0)
    }
}

impl Observer for Diary {
    fn observe(&self, event: &Event<'_>) {
        let word = match event {
            Event::Dispatched { destination, .. } => {
                *self.delivered.lock().unwrap().entry(destination.to_string()).or_default() += 1;
                return;
            }
            Event::AttemptFailed { .. } => "attempt failed",
            Event::Held { .. } => "held",
            Event::MovedToErrorQueue { reason: Reason::NoDestination, .. } => "no destination",
            Event::MovedToErrorQueue { .. } => "moved to error queue",
            Event::PossibleDuplicate { .. } => "possible duplicate",
            _ => return,
        };
        *self.words.lock().unwrap().entry(word).or_default() += 1;
    }
}
