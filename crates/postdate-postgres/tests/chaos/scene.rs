//! An endpoint with queues in a schema of its own, and what is done with them.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use jiff::Timestamp;
use postdate_core::{
    Address, Backend as _, Backoff, DelayedDelivery, DelayedMessage, DelayedMessageStore, Due, EndpointName,
    Event, Message, MessageId, Observer, QueuedMessage, Queues as _, Settings, StoreError, TransactionMode,
};
use postdate_postgres::Postgres;
use sqlx::{Connection as _, PgConnection};

use crate::ledger::{Counts, Found, Ledger, Pending};

/// Nothing is expected to take so long, on a busy machine neither.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// What a dispatcher holds at most, in two batches.
pub(crate) const BATCH: usize = 20;

/// A schema with an endpoint `orders` and the queues `billing` and `error`.
pub(crate) struct Scene {
    url: String,
    schema: String,
    /// A handle that nobody disturbs.
    onlooker: Postgres,
    store: Arc<dyn DelayedMessageStore>,
    ledger: Ledger,
    stored: AtomicU64,
}

impl Scene {
    /// In the database that this URL leads to.
    pub(crate) async fn at(url: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let schema = format!("chaos_{}_{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let onlooker = Postgres::connect(&with_schema(url, &schema, "onlooker")).await.unwrap();
        onlooker.set_up(&orders()).await.unwrap();
        for queue in ["billing", "error"] {
            onlooker.queues().create(&address(queue)).await.unwrap();
        }
        let store = open(&onlooker, TransactionMode::None).await;
        let (url, ledger, stored) = (url.to_owned(), Ledger::default(), AtomicU64::new(0));
        Self { url, schema, onlooker, store, ledger, stored }
    }

    /// In the server that tests share.
    pub(crate) async fn shared() -> Self {
        Self::at(&test_postgres::url()).await
    }

    /// The same schema by another way to the server, under a name that the server shows.
    pub(crate) fn url_at(&self, url: &str, application: &str) -> String {
        with_schema(url, &self.schema, application)
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Another handle, straight to the server.
    pub(crate) async fn open(&self) -> Postgres {
        Postgres::connect(&self.url_at(&self.url, "other")).await.unwrap()
    }

    /// A connection for statements of our own.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// A message to `billing` that was not used before.
    pub(crate) fn message(&self, due: Due) -> DelayedMessage {
        let number = self.stored.fetch_add(1, Relaxed);
        let message = Message::new(format!("invoice {number}")).id(id(&format!("m{number}")));
        let message = message.to(address("billing"), due);
        self.ledger.attempts(&message);
        message
    }

    /// Stores so many messages that are due at once.
    pub(crate) async fn fill(&self, count: usize) {
        let messages: Vec<_> = (0..count).map(|_| self.message(Due::NOW)).collect();
        self.note(&messages, again(async || self.store.store(&messages).await).await);
    }

    pub(crate) fn note(&self, messages: &[DelayedMessage], dues: Vec<Timestamp>) {
        for (message, due) in messages.iter().zip(dues) {
            self.ledger.acknowledged(&message.message.id, due);
        }
    }

    /// How many messages are due and not yet gone.
    pub(crate) async fn overdue(&self) -> u64 {
        // The server may have been restarted.
        again(async || self.store.stats().await).await.overdue
    }

    /// Waits until everything that is due is delivered, and judges what is there then.
    pub(crate) async fn settle(&self) -> Counts {
        eventually("delivering what is due", async || self.overdue().await == 0).await;
        self.judge().await
    }

    /// Judges what is there.
    pub(crate) async fn judge(&self) -> Counts {
        let errors = self.queued("error").await;
        assert!(errors.is_empty(), "an outage sent {} messages to the error queue", errors.len());
        let all = format!("SELECT id, body, failures FROM {}.message", self.schema);
        let all = sqlx::query_as::<_, (String, Vec<u8>, i32)>(sqlx::AssertSqlSafe(all));
        let all = all.fetch_all(&mut self.connection().await).await.unwrap();
        let pending = |(text, body, failures): (String, _, _)| Pending { id: id(&text), body, failures };
        let pending = all.into_iter().map(pending).collect();
        self.ledger.judge(&Found { arrived: self.queued("billing").await, pending })
    }

    /// How many messages are in the queue `billing`.
    pub(crate) async fn depth(&self) -> u64 {
        let all = self.onlooker.queues().list().await.unwrap();
        all.iter().find(|queue| queue.name == address("billing")).unwrap().depth
    }

    /// Has all receivers' locks run out.
    pub(crate) async fn end_leases(&self) {
        let end = format!("UPDATE {}.queue_message SET locked_until = '-infinity'", self.schema);
        sqlx::raw_sql(sqlx::AssertSqlSafe(end)).execute(&mut self.connection().await).await.unwrap();
    }

    async fn queued(&self, queue: &str) -> Vec<QueuedMessage> {
        self.onlooker.queues().browse(&address(queue), 0, limit(1_000_000)).await.unwrap()
    }

    /// Removes the schema.
    pub(crate) async fn end(self) {
        let drop = format!("DROP SCHEMA {} CASCADE", self.schema);
        sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(&mut self.connection().await).await.unwrap();
    }
}

fn with_schema(url: &str, schema: &str, application: &str) -> String {
    let next = if url.contains('?') { '&' } else { '?' };
    format!("{url}{next}schema={schema}&application_name={application}")
}

/// Tries until it works; what fails must be said to be worth trying again.
pub(crate) async fn again<T>(call: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    counting(&AtomicUsize::new(0), call).await
}

/// The same; counts the failures.
pub(crate) async fn counting<T>(
    failures: &AtomicUsize,
    mut call: impl AsyncFnMut() -> Result<T, StoreError>,
) -> T {
    let start = Instant::now();
    loop {
        match call().await {
            Ok(done) => return done,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                assert!(start.elapsed() < PATIENCE, "{error}");
                failures.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Opens the endpoint.
pub(crate) async fn open(postgres: &Postgres, mode: TransactionMode) -> Arc<dyn DelayedMessageStore> {
    postgres.open(&orders(), mode).await.unwrap()
}

/// Delivers to the queues beside the store.
pub(crate) async fn deliver(
    postgres: &Postgres,
    mode: TransactionMode,
    diary: &Arc<Diary>,
) -> DelayedDelivery {
    deliver_with(settings(), postgres, mode, diary).await
}

/// Small batches; a failure that counted would be the last.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.batch_size = limit(BATCH);
    settings.retry_backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(50));
    settings
}

pub(crate) async fn deliver_with(
    settings: Settings,
    postgres: &Postgres,
    mode: TransactionMode,
    diary: &Arc<Diary>,
) -> DelayedDelivery {
    let builder = DelayedDelivery::builder("orders").store(postgres.clone());
    let builder = builder.dispatcher(postgres.queues().dispatcher()).observer(diary.clone());
    builder.transaction_mode(mode).settings(settings).without_set_up().start().await.unwrap()
}

/// Waits until `done` says so.
pub(crate) async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn orders() -> EndpointName {
    EndpointName::new("orders").unwrap()
}

pub(crate) fn address(name: &str) -> Address {
    Address::new(name).unwrap()
}

pub(crate) fn limit(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

/// Counts what must not happen, and what must.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    pub dispatched: AtomicU64,
    pub failed_calls: AtomicU64,
    pub counted_failures: AtomicU64,
}

impl Observer for Diary {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Dispatched { .. } => &self.dispatched,
            Event::StoreFailed { .. } | Event::Held { .. } => &self.failed_calls,
            Event::AttemptFailed { .. } | Event::MovedToErrorQueue { .. } => &self.counted_failures,
            _ => return,
        }
        .fetch_add(1, Relaxed);
    }
}
