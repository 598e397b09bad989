//! No secret and no body in what is logged, told, counted or shown, over everything that can happen to messages (S23).
//!
//! Bodies, header values and a password are words that stand nowhere else. All that postdate says is kept, at the
//! finest level, and looked through for them.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

use std::{
    fmt::Debug,
    io,
    num::NonZeroUsize,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use postdate_core::{
    Address, Backend, Backoff, Cancellation, DelayedDelivery, DelayedMessageStoreExt as _, DispatchError,
    DispatchErrorKind, Dispatcher, Due, EncodedHeaders, EndpointName, Enlistment, Event, Filter, ListQuery,
    Message, MessageId, Metrics, Observer, OutgoingMessage, Queues, ReceiverExt as _, Settings, StoreError,
    StoreUrl, TransactionMode, error_queue,
};
use postdate_sqlite::{DRIVER, Sqlite};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

const BODY: &str = "the-canary-in-the-body";
const HEADER: &str = "the-canary-in-a-header";
const PASSWORD: &str = "the-canary-in-the-url";

/// All that was said.
#[derive(Clone, Debug, Default)]
struct Said(Arc<Mutex<String>>);

impl Said {
    fn note(&self, said: &dyn Debug) {
        // In both forms: the pretty one shows what the other may leave out.
        self.0.lock().unwrap().push_str(&format!("{said:?}\n{said:#?}\n"));
    }

    fn note_error(&self, error: &dyn std::error::Error) {
        self.0.lock().unwrap().push_str(&format!("{error}\n{error:?}\n"));
        if let Some(source) = error.source() {
            self.note_error(source);
        }
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Said {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Observer for Said {
    fn observe(&self, event: &Event<'_>) {
        self.note(event);
    }
}

/// Queues, and destinations that fail in every way.
#[derive(Debug)]
struct Destinations {
    queues: Arc<dyn Dispatcher>,
    manners: Manners,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manners {
    Discreet,
    /// They repeat what they refuse, which nothing else must do.
    Talkative,
}

#[async_trait]
impl Dispatcher for Destinations {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        let mut outcomes = Vec::new();
        for message in messages {
            let said = match self.manners {
                Manners::Discreet => "no".into(),
                Manners::Talkative => String::from_utf8_lossy(&message.body),
            };
            match message.destination.as_str() {
                "refusing" => outcomes.push(Err(DispatchError::new(DispatchErrorKind::Rejected, said))),
                "down" => outcomes.push(Err(DispatchError::new(DispatchErrorKind::Unavailable, "down"))),
                "panicking" => panic!("planted"),
                _ => outcomes.extend(self.queues.dispatch(std::slice::from_ref(message), None).await),
            }
        }
        outcomes
    }
}

#[tokio::test]
async fn nothing_that_is_said_shows_a_secret_or_a_body() {
    let said = Said::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(said.clone())
        .init();
    let folder = tempfile::tempdir().unwrap();

    everything_happens(&said, &folder.path().join("discreet.db"), Manners::Discreet).await;
    urls_are_shown(&said).await;
    let text = said.text();
    for canary in [BODY, HEADER, PASSWORD] {
        let lines: Vec<_> = text.lines().filter(|line| line.contains(canary)).collect();
        assert_eq!(lines, [""; 0], "{canary} was said");
    }
    // What was not said cannot have shown anything.
    for word in [
        "delayed delivery started",
        "dispatched",
        "attempt failed",
        "destination unavailable",
        "moved to error queue",
        "quarantined a row",
        "cancelled",
        "rescheduled",
        "there already with different content",
        "the limit is",
        "not one JSON object",
        "MetricsSnapshot",
        "Cancelled {",
        "BreakerTripped",
        "sqlite://***@",
    ] {
        assert!(text.contains(word), "{word:?} was not said");
    }

    // A canary that nobody would see proves nothing.
    everything_happens(&said, &folder.path().join("talkative.db"), Manners::Talkative).await;
    let text = &said.text()[text.len()..];
    for place in ["attempt failed", "AttemptFailed", "MovedToErrorQueue", "ScheduledSummary"] {
        let shows = |line: &str| line.contains(place) && line.contains(BODY);
        assert!(text.lines().any(shows), "a body in {place} would not be noticed");
    }
}

/// Delivery with successes, failures and everything that an operator can do, in a file that others have damaged.
async fn everything_happens(said: &Said, path: &Path, manners: Manners) {
    let sqlite = Sqlite::open(path).await.unwrap();
    let queues = sqlite.queues();
    for queue in ["billing", "error"] {
        queues.create(&address(queue)).await.unwrap();
    }
    let metrics = Arc::new(Metrics::default());
    let dispatcher = Destinations { queues: queues.dispatcher(), manners };
    let builder = DelayedDelivery::builder("orders")
        .store(sqlite.clone())
        .dispatcher(dispatcher)
        .error_dispatcher(Destinations { queues: queues.dispatcher(), manners })
        .settings(settings())
        .observer(Arc::new(said.clone()))
        .observer(metrics.clone());
    said.note(&builder);
    let delivery = builder.start().await.unwrap();
    said.note(&delivery);

    for to in ["billing", "refusing", "down", "panicking", "nowhere"] {
        delivery.send(address(to), message(to), Due::NOW).await.unwrap();
    }
    let foreign = |id: &str, headers: String| {
        let mut sent = message(id).to(address("refusing"), Due::NOW);
        sent.message.headers = EncodedHeaders::from_bytes(headers);
        said.note_error(&sent.message.headers.decode().unwrap_err());
        said.note_error(&error_queue::restore(&sent.message).unwrap_err());
        sent
    };
    delivery
        .send_batch(&[
            foreign("foreign text", format!("\"{HEADER}\"")),
            foreign("foreign json", format!("{{\"list\":[\"{HEADER}\"]}}")),
        ])
        .await
        .unwrap();
    let waiting = message("waiting").to(address("billing"), Due::after(Duration::from_secs(3_600)));
    said.note(&message("waiting"));
    said.note(&waiting);
    said.note(&delivery.send_batch(std::slice::from_ref(&waiting)).await.unwrap());
    refusals(said, &delivery).await;

    damage(path);
    delivery.send(address("billing"), message("after the damage"), Due::NOW).await.unwrap();
    let moved = async || queues.browse(&address("error"), 0, all()).await.unwrap().len() >= 4;
    eventually("four in the error queue", moved).await;
    let arrived = async || queues.browse(&address("billing"), 0, all()).await.unwrap().len() >= 2;
    eventually("two in their queue", arrived).await;
    eventually("a breaker to trip", async || !delivery.tripped_breakers().is_empty()).await;
    if manners == Manners::Talkative {
        delivery.send(address("refusing"), message("once more"), Due::NOW).await.unwrap();
        let is_counted = async || {
            delivery.get(&id("once more")).await.unwrap().is_some_and(|seen| seen.message.failures > 0)
        };
        eventually("a counted failure", is_counted).await;
    }

    said.note(&delivery.list(&ListQuery::new(Filter::default(), all())).await.unwrap());
    said.note(&delivery.get(&id("waiting")).await.unwrap().unwrap());
    said.note(&delivery.stats().await.unwrap());
    said.note(&delivery.reschedule(&id("waiting"), Due::after(Duration::from_secs(7_200))).await.unwrap());
    assert_eq!(delivery.cancel(&id("waiting")).await.unwrap(), Cancellation::Cancelled);
    said.note(&delivery.stop().await);
    said.note(&metrics.snapshot());
    said.note(&metrics);
    by_hand(said, &sqlite).await;
}

/// What a store says when it does not take a message.
async fn refusals(said: &Said, delivery: &DelayedDelivery) {
    let hour = Due::after(Duration::from_secs(3_600));
    let other = Message::new(format!("{BODY}, another")).id(id("waiting")).header("key", HEADER);
    let too_large = Message::new(BODY.repeat(2 << 20)).id(id("too large")).header("key", HEADER);
    let never = message("never").to(address("billing"), Due::after(Duration::MAX));
    for refused in [
        delivery.send(address("billing"), other, hour).await.map(drop),
        delivery.send(address("billing"), too_large, hour).await.map(drop),
        delivery.send_batch(&[never]).await.map(drop),
    ] {
        said.note_error(&refused.unwrap_err());
    }
}

/// Claims, batches and receivers as programs of their own would hold them.
async fn by_hand(said: &Said, sqlite: &Sqlite) {
    let endpoint = EndpointName::new("by hand").unwrap();
    sqlite.set_up(&endpoint).await.unwrap();
    let store = sqlite.open(&endpoint, TransactionMode::TransactionScope).await.unwrap();
    let queues = sqlite.queues();
    store.store_one(message("held").to(address("billing"), Due::NOW)).await.unwrap();
    let mut batch = store.fetch(NonZeroUsize::MIN).await.unwrap();
    let sent = batch.messages[0].message.clone();
    let outcomes = queues.dispatcher().dispatch(&[sent], batch.claim.enlist()).await;
    said.note(&(sqlite, &store, &queues, &queues.dispatcher(), &outcomes, &batch));
    batch.claim.remove(&[id("held")]).await.unwrap();
    batch.claim.commit().await.unwrap();

    let receiver = queues.receiver(&address("billing")).await.unwrap();
    let mut received = receiver.receive(all()).await.unwrap();
    said.note(&(&receiver, &received));
    let positions: Vec<_> = received.messages.iter().map(|queued| queued.position).collect();
    said.note_error(&received.claim.move_to(&positions, &address("nowhere")).await.unwrap_err());
    said.note(&queues.browse(&address("error"), 0, all()).await.unwrap());
    said.note(&queues.list().await.unwrap());
}

/// Makes rows that cannot be read, as somebody who writes to the file himself.
fn damage(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    let row = "INSERT INTO message (endpoint, attempt_at, due, id, destination, headers, body)
        VALUES ((SELECT id FROM endpoint WHERE name = 'orders'), 0, 0, ?1, ?2, ?3, ?4)";
    let content = (HEADER.as_bytes(), BODY.as_bytes());
    connection.execute(row, ("no destination", "a\nb", content.0, content.1)).unwrap();
    connection.execute(row, ("", "billing", content.0, content.1)).unwrap();
    let row = "INSERT INTO queue_message (queue, enqueued, id, headers, body)
        VALUES ((SELECT id FROM queue WHERE name = 'billing'), 0, '', ?1, ?2)";
    connection.execute(row, content).unwrap();
}

async fn urls_are_shown(said: &Said) {
    for text in [
        format!("sqlite://me:{PASSWORD}@host/x.db"),
        format!("sqlite:x.db?password={PASSWORD}"),
        format!("sqlite:/no/such/folder/x.db?key={PASSWORD}"),
        format!("postgres://me:{PASSWORD}@host/x"),
    ] {
        let url = StoreUrl::parse(&text).unwrap();
        said.note(&(&url, url.to_string()));
        if url.scheme() == "sqlite" {
            said.note_error(&(DRIVER.connect)(&url).await.unwrap_err());
        }
    }
    said.note_error(&StoreUrl::parse(&format!("no url {PASSWORD}")).unwrap_err());
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.number_of_retries = 1;
    settings.retry_backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(5));
    settings.time_to_trigger_dispatch_circuit_breaker = Duration::from_millis(1);
    settings.batch_size = NonZeroUsize::MIN.saturating_add(3);
    settings
}

fn message(id: &str) -> Message {
    Message::new(format!("{BODY} of {id}")).id(self::id(id)).header("key", HEADER)
}

fn address(name: &str) -> Address {
    Address::new(name).unwrap()
}

fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

fn all() -> NonZeroUsize {
    NonZeroUsize::new(1_000).unwrap()
}

async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !done().await {
        assert!(begin.elapsed() < Duration::from_secs(30), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
