//! Durable queues in the file.

use std::{num::NonZeroUsize, path::Path, sync::Arc};

use async_trait::async_trait;
use postdate_core::{
    Address, Dispatcher, Operation, QueueStatus, QueuedMessage, Receiver, StoreError, StoreErrorKind,
};
use rusqlite::Connection;

use crate::{
    Options,
    dispatcher::{MAX_QUEUED_BYTES, QueueDispatcher, find_queue},
    error::{Fault, Result},
    file::File,
    receiver::{QueueReceiver, believable_end, read_message},
    record, schema,
    time::{floor_micros, from_micros},
    writer::{Tx, Work},
};

const CREATE: &str = "INSERT INTO queue (name) VALUES (?1) ON CONFLICT (name) DO NOTHING";

const LIST: &str = "
    SELECT name, (SELECT count(*) FROM queue_message WHERE queue = queue.id),
        (SELECT enqueued FROM queue_message WHERE queue = queue.id ORDER BY seq LIMIT 1)
    FROM queue ORDER BY name";

/// So many messages are purged by one transaction: others who write should not have to wait for all.
const SLICE: u32 = 10_000;

const LAST: &str = "SELECT max(seq) FROM queue_message WHERE queue = ?1";

/// What is free, and what was put aside because it cannot be read.
const PURGE: &str = "
    DELETE FROM queue_message WHERE seq IN (
        SELECT seq FROM queue_message
        WHERE queue = ?1 AND seq <= ?2 AND (locked_until <= ?3 OR locked_until > ?4) ORDER BY seq LIMIT ?5)";

const BROWSE: &str = "
    SELECT seq, enqueued, deliveries, id, headers, body FROM queue_message
    WHERE queue = ?1 AND seq > ?2 ORDER BY seq";

/// The queues in an SQLite file.
#[derive(Clone, Debug)]
pub struct Queues {
    file: Arc<File>,
}

impl Queues {
    pub(crate) fn new(file: Arc<File>) -> Self {
        Self { file }
    }

    /// Opens a file of its own. Where the file is open as a [`Sqlite`](crate::Sqlite) already,
    /// [`queues`](crate::Sqlite::queues) shares that one's writer thread, and is cheaper.
    ///
    /// # Errors
    /// As [`Sqlite::open`](crate::Sqlite::open).
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::with_options(path, Options::new()).await
    }

    /// Opens a file of its own with options.
    ///
    /// # Errors
    /// As [`Sqlite::open`](crate::Sqlite::open).
    pub async fn with_options(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        Ok(Self { file: File::open(path.as_ref(), options).await? })
    }
}

#[async_trait]
impl postdate_core::Queues for Queues {
    async fn create(&self, queue: &Address) -> Result<bool, StoreError> {
        let queue = queue.clone();
        let create = move |tx: &mut Tx<'_>| {
            schema::set_up(tx.connection, None)?;
            Ok(tx.connection.prepare_cached(CREATE)?.execute([queue.as_str()])? == 1)
        };
        self.file.write(Operation::Administer, Work::Undoable, create).await
    }

    async fn list(&self) -> Result<Vec<QueueStatus>, StoreError> {
        match self.file.read(Operation::Administer, list).await {
            Err(error) if error.kind() == StoreErrorKind::NotSetUp => Ok(Vec::new()),
            listed => listed,
        }
    }

    async fn purge(&self, queue: &Address) -> Result<u64, StoreError> {
        let (mut purged, mut last) = (0, None);
        loop {
            let queue = queue.clone();
            let purge = move |tx: &mut Tx<'_>| purge_slice(tx, &queue, last);
            let (slice, end) = self.file.write(Operation::Administer, Work::Plain, purge).await?;
            (purged, last) = (purged + slice, Some(end));
            if slice < u64::from(SLICE) {
                return Ok(purged);
            }
        }
    }

    async fn browse(
        &self,
        queue: &Address,
        after: u64,
        limit: NonZeroUsize,
    ) -> Result<Vec<QueuedMessage>, StoreError> {
        let queue = queue.clone();
        let browse = move |connection: &Connection| browse(connection, &queue, after, limit);
        self.file.read(Operation::Administer, browse).await
    }

    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(QueueDispatcher::new(Arc::clone(&self.file)))
    }

    fn max_message_bytes(&self) -> usize {
        MAX_QUEUED_BYTES
    }

    async fn receiver(&self, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError> {
        let name = queue.clone();
        let find = move |connection: &Connection| number(connection, &name);
        let number = self.file.read(Operation::Receive, find).await?;
        Ok(Arc::new(QueueReceiver::new(Arc::clone(&self.file), number, queue.clone())))
    }
}

/// The number of a queue that should be there.
pub(crate) fn number(connection: &Connection, queue: &Address) -> Result<i64> {
    match find_queue(connection, queue) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(Fault::no_such_queue(queue)),
        Err(fault) if fault.kind() == StoreErrorKind::NotSetUp => Err(Fault::no_such_queue(queue)),
        Err(fault) => Err(fault),
    }
}

fn list(connection: &Connection) -> Result<Vec<QueueStatus>> {
    let mut statement = connection.prepare_cached(LIST)?;
    let mut rows = statement.query([])?;
    let mut queues = Vec::new();
    while let Some(row) = rows.next()? {
        let Ok(name) = record::address(row.get_ref(0)?, None) else { continue };
        let oldest: Option<i64> = row.get(2)?;
        queues.push(QueueStatus { name, depth: record::count(row, 1)?, oldest: oldest.map(from_micros) });
    }
    Ok(queues)
}

/// Purges a slice of what is not after `last`, or of what is there now. Answers with its size and with where all
/// slices end: what arrives in between is left.
fn purge_slice(tx: &Tx<'_>, queue: &Address, last: Option<i64>) -> Result<(u64, i64)> {
    let number = number(tx.connection, queue)?;
    let last = match last {
        Some(last) => last,
        None => {
            let found: Option<i64> =
                tx.connection.prepare_cached(LAST)?.query_row([number], |row| row.get(0))?;
            found.unwrap_or(0)
        }
    };
    let now = floor_micros(tx.shared.clock.now());
    let purged =
        tx.connection.prepare_cached(PURGE)?.execute((number, last, now, believable_end(now), SLICE))?;
    Ok((purged as u64, last))
}

fn browse(
    connection: &Connection,
    queue: &Address,
    after: u64,
    limit: NonZeroUsize,
) -> Result<Vec<QueuedMessage>> {
    let number = number(connection, queue)?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(BROWSE)?;
    let mut rows = statement.query([number, after])?;
    let mut messages = Vec::new();
    // The limit counts what can be read: a shorter answer means the end of the queue.
    while messages.len() < limit.get()
        && let Some(row) = rows.next()?
    {
        messages.extend(read_message(row, queue)?.ok());
    }
    Ok(messages)
}
