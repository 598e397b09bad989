//! What the SQLite store reads: rows that others wrote, cursors, the small files beside the database, and the file.

use std::{fs, num::NonZeroUsize, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use postdate::{
    Address, Backend as _, DelayedMessageStore, DelayedMessageStoreExt as _, Due, EndpointName, Failure,
    Filter, ListQuery, Message, MessageId, Queues as _, Selection, StoreErrorKind, TransactionMode,
    sqlite::{Durability, Options, Sqlite},
};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::{brief::Target, decoders::list_from};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "sqlite_cursor", run: cursor, rounds: 500 },
    Target { name: "sqlite_row", run: row, rounds: 150 },
    Target { name: "sqlite_queue_row", run: queue_row, rounds: 150 },
    Target { name: "sqlite_claims_file", run: claims_file, rounds: 300 },
    Target { name: "sqlite_file", run: file, rounds: 60 },
];

const ALL: NonZeroUsize = NonZeroUsize::MAX;

thread_local! {
    static PLACE: Place = Place::new();
}

/// A file that is open twice, as by two processes, and once more for raw SQL.
struct Place {
    runtime: Runtime,
    directory: TempDir,
    sqlite: Sqlite,
    store: Arc<dyn DelayedMessageStore>,
    other: Arc<dyn DelayedMessageStore>,
    raw: Connection,
}

impl Place {
    fn new() -> Self {
        let runtime = runtime();
        let directory = tempfile::tempdir().expect("there is room for a database");
        let path = directory.path().join("x.db");
        let open = || runtime.block_on(open(path.clone())).expect("it can be opened");
        let ((sqlite, store), (_, other)) = (open(), open());
        runtime.block_on(sqlite.queues().create(&billing())).expect("a queue can be created");
        let raw = Connection::open(&path).expect("it is a database");
        raw.pragma_update(None, "synchronous", "off").expect("it is a pragma");
        // The first to fetch is the one that dispatches.
        drop(runtime.block_on(store.fetch(ALL)).expect("an empty store can be fetched from"));
        Self { runtime, directory, sqlite, store, other, raw }
    }

    /// Executes raw SQL with values that are numbers and, for texts and blobs, any bytes.
    fn insert(&self, sql: &str, input: &[u8]) {
        let mut input = Input(input);
        let numbers: [i64; 4] = std::array::from_fn(|_| input.number());
        let texts: [Vec<u8>; 5] = std::array::from_fn(|_| input.piece());
        let [a, b, c, d] = numbers;
        let [e, f, g, h, i] = texts;
        self.raw.execute(sql, (a, b, c, d, e, f, g, h, i)).expect("the row is what the table takes");
    }
}

async fn open(path: PathBuf) -> Result<(Sqlite, Arc<dyn DelayedMessageStore>), postdate::StoreError> {
    let options = Options::new().durability(Durability::ProcessCrash);
    let sqlite = Sqlite::with_options(path, options).await?;
    let orders = EndpointName::new("orders").expect("it is valid");
    sqlite.set_up(&orders).await?;
    let store = sqlite.open(&orders, TransactionMode::ReceiveOnly).await?;
    Ok((sqlite, store))
}

fn cursor(input: &[u8]) {
    PLACE.with(|place| place.runtime.block_on(list_from(&*place.store, input)));
}

/// A row that somebody else wrote, and a healthy one behind it that must get through.
fn row(input: &[u8]) {
    if contains(input, b"healthy") {
        return;
    }
    PLACE.with(|place| {
        place.insert(
            "INSERT INTO message (endpoint, attempt_at, due, asked, failures, last_error, id, destination, headers, body)
             VALUES (1, min(?1, 9), ?2, ?3, ?4, CAST(?5 AS TEXT), CAST(?6 AS TEXT), CAST(?7 AS TEXT), ?8, ?9)
             ON CONFLICT DO NOTHING",
            input,
        );
        place.runtime.block_on(async {
            let store = &place.store;
            store.store_one(message("healthy", Due::At(Timestamp::UNIX_EPOCH))).await.expect("it is valid");
            let listed = store.list(&ListQuery::new(Filter::default(), ALL)).await.expect("one row is not all");
            assert_eq!(listed.messages.len(), 2);
            store.stats().await.expect("one row is not all");
            for line in &listed.messages {
                store.get(&line.id).await.expect("one row is not all");
            }
            store.next_due(&[]).await.expect("one row is not all");
            let mut batch = store.fetch(ALL).await.expect("one row is not all");
            let ids: Vec<_> = batch.messages.iter().map(|due| due.message.id.clone()).collect();
            assert!(ids.iter().any(|id| id.as_str() == "healthy"), "it stood in the way: {ids:?}");
            let fail = |id: &MessageId| Failure { id: id.clone(), retry_after: Duration::ZERO, error: String::new() };
            let failures: Vec<_> = ids.iter().map(fail).collect();
            let counted = batch.claim.increment_failure_count(&failures).await.expect("one row is not all");
            assert_eq!(counted, vec![true; ids.len()]);
            drop(batch);
            let again = store.fetch(ALL).await.expect("one row is not all");
            assert_eq!(again.messages.len(), ids.len());
        });
        place.raw.execute("DELETE FROM message", ()).expect("nobody else writes");
    });
}

/// The same in a queue.
fn queue_row(input: &[u8]) {
    if contains(input, b"healthy") {
        return;
    }
    PLACE.with(|place| {
        place.insert(
            "INSERT INTO queue_message (seq, queue, locked_until, lock, deliveries, enqueued, id, headers, body)
             VALUES (max(1, ?1 % 1000), 1, 0, ?2, ?3, ?4, CAST(?5 AS TEXT), ?6, CAST(?7 || ?8 || ?9 AS BLOB))",
            input,
        );
        place.runtime.block_on(async {
            let queues = place.sqlite.queues();
            let healthy = message("healthy", Due::NOW).message;
            for sent in queues.dispatcher().dispatch(&[healthy], None).await {
                sent.expect("the queue is there");
            }
            queues.list().await.expect("one row is not all");
            queues.browse(&billing(), 0, ALL).await.expect("one row is not all");
            let receiver = queues.receiver(&billing()).await.expect("the queue is there");
            let received = receiver.try_receive(&Selection::Next(ALL)).await.expect("one row is not all");
            assert!(received.messages.iter().any(|queued| queued.message.id.as_str() == "healthy"));
        });
        place.raw.execute("DELETE FROM queue_message", ()).expect("nobody else writes");
    });
}

/// What the dispatching process holds, as another one reads it.
fn claims_file(input: &[u8]) {
    PLACE.with(|place| {
        let path = place.directory.path().join("x.db-claims-1");
        let before = fs::read(&path).expect("the first fetch made it");
        place.runtime.block_on(async {
            place
                .store
                .store_one(message("kept", Due::after(Duration::from_secs(3_600))))
                .await
                .expect("valid");
            fs::write(&path, input).expect("it is a file");
            let id = MessageId::new("kept").expect("it is valid");
            for answer in [
                place.other.get(&id).await.map(drop),
                place.other.stats().await.map(drop),
                place.other.list(&ListQuery::new(Filter::default(), ALL)).await.map(drop),
                place.other.cancel(&[id]).await.map(drop),
            ] {
                if let Err(error) = answer {
                    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                }
            }
            fs::write(&path, before).expect("it is a file");
        });
    });
}

/// A database with some bytes changed. It may be refused or found damaged, and no worse.
fn file(input: &[u8]) {
    thread_local! {
        static SOUND: Vec<u8> = sound_file();
    }
    let mut content = SOUND.with(Clone::clone);
    let mut edits = Input(input);
    while !edits.0.is_empty() {
        let at = edits.number().unsigned_abs() % content.len() as u64;
        let at = usize::try_from(at).unwrap_or_default();
        let piece = edits.piece();
        let end = content.len().min(at + piece.len());
        content[at..end].copy_from_slice(&piece[..end - at]);
    }
    let directory = tempfile::tempdir().expect("there is room for a database");
    let path = directory.path().join("x.db");
    fs::write(&path, content).expect("there is room for a database");
    runtime().block_on(async {
        let Ok((sqlite, store)) = open(path).await else { return };
        drop(store.list(&ListQuery::new(Filter::default(), ALL)).await);
        drop(store.stats().await);
        drop(store.store_one(message("another", Due::NOW)).await);
        if let Ok(mut batch) = store.fetch(ALL).await {
            let ids: Vec<_> = batch.messages.iter().map(|due| due.message.id.clone()).collect();
            drop(batch.claim.remove(&ids).await);
        }
        drop(sqlite.queues().browse(&billing(), 0, ALL).await);
    });
}

fn sound_file() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("there is room for a database");
    let path = directory.path().join("x.db");
    runtime().block_on(async {
        let (sqlite, store) = open(path.clone()).await.expect("it can be opened");
        sqlite.queues().create(&billing()).await.expect("a queue can be created");
        for n in 0..5 {
            store.store_one(message(&format!("m{n}"), Due::NOW)).await.expect("it is valid");
        }
        drop(sqlite.queues().dispatcher().dispatch(&[message("q", Due::NOW).message], None).await);
    });
    // The last connection that closes writes the log back; this one waits for nobody.
    let raw = Connection::open(&path).expect("it is a database");
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).expect("nobody writes");
    fs::read(&path).expect("it is there")
}

fn contains(input: &[u8], word: &[u8]) -> bool {
    input.windows(word.len()).any(|window| window == word)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime can be made")
}

fn message(id: &str, due: Due) -> postdate::DelayedMessage {
    Message::new("body").id(MessageId::new(id).expect("it is valid")).to(billing(), due)
}

fn billing() -> Address {
    Address::new("billing").expect("it is valid")
}

/// Values taken from bytes; zeros and nothing when they are used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn number(&mut self) -> i64 {
        let (taken, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..taken.len()].copy_from_slice(taken);
        i64::from_le_bytes(bytes)
    }

    /// As many bytes as the first one says.
    fn piece(&mut self) -> Vec<u8> {
        let Some((length, rest)) = self.0.split_first() else { return Vec::new() };
        let (taken, rest) = rest.split_at(rest.len().min((*length).into()));
        self.0 = rest;
        taken.to_vec()
    }
}
