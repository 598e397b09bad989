//! A directory for one test, what is opened in it, and messages to fill it with.

use std::{
    num::NonZeroUsize,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use postdate_core::{
    Address, Backend, Clock, DelayedMessage, DelayedMessageStore, Due, EndpointName, Message, MessageId,
    OutgoingMessage, TransactionMode,
};
use postdate_sqlite::{Options, Sqlite};

pub(crate) type Store = Arc<dyn DelayedMessageStore>;

/// A temporary directory with one file in it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) clock: Arc<HandClock>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), clock: Arc::new(HandClock::new()) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("postdate.db")
    }

    /// Opens the file once more: another file object, as another process would have it.
    pub(crate) async fn open(&self) -> Sqlite {
        let clock: Arc<dyn Clock> = self.clock.clone();
        Sqlite::with_options(self.path(), Options::new().clock(clock)).await.unwrap()
    }

    /// A store of the endpoint `orders` in a file object of its own.
    pub(crate) async fn store(&self) -> Store {
        orders(&self.open().await, TransactionMode::ReceiveOnly).await
    }
}

/// The store of the endpoint `orders`.
pub(crate) async fn orders(sqlite: &Sqlite, mode: TransactionMode) -> Store {
    let endpoint = EndpointName::new("orders").unwrap();
    sqlite.set_up(&endpoint).await.unwrap();
    sqlite.open(&endpoint, mode).await.unwrap()
}

/// A clock that is moved by hand.
#[derive(Debug)]
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    fn new() -> Self {
        Self(AtomicI64::new(Timestamp::now().as_microsecond()))
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn turn_back(&self, by: Duration) {
        self.0.fetch_sub(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

pub(crate) fn address(text: &str) -> Address {
    Address::new(text).unwrap()
}

pub(crate) fn limit(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// A message to `billing` that is due at once.
pub(crate) fn message(name: &str) -> DelayedMessage {
    delayed(name, Due::NOW)
}

pub(crate) fn delayed(name: &str, due: Due) -> DelayedMessage {
    Message::new(format!("body of {name}")).header("name", name).id(id(name)).to(address("billing"), due)
}

/// A message to a queue, on its way out.
pub(crate) fn outgoing(queue: &str, name: &str) -> OutgoingMessage {
    OutgoingMessage { destination: address(queue), ..message(name).message }
}

/// Asks again and again until the answer is yes, for ten seconds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !ask().await {
        assert!(Instant::now() < deadline, "not within ten seconds: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
