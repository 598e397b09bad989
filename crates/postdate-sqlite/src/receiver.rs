//! Receiving from a queue of the file.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use postdate_core::{
    Address, MessageId, Operation, QueuedMessage, ReceivedBatch, Receiver, Selection, StoreError,
    wake::{Topic, Wake},
};
use rusqlite::{Connection, OptionalExtension, Row};
use tokio::time::timeout;

use crate::{
    error::Result,
    file::File,
    receive_claim::{Lock, QueueClaim},
    record::{self, Content},
    time::{NEVER, floor_micros, from_micros},
    writer::{Tx, Work},
};

/// How long a received message is hidden from others unless its receiver renews.
pub(crate) const LOCK_TERM: Duration = Duration::from_secs(30);

/// A batch ends when its bodies are this large together, in bytes.
const BATCH_BYTES: usize = 16 << 20;

/// The free messages of a queue: those without a lock, those whose lock ran out, and those whose lock cannot be
/// true; but not those that are put aside for ever.
const NEXT: &str = "
    SELECT seq FROM queue_message
    WHERE queue = ?1 AND (locked_until <= ?2 OR locked_until > ?3) AND locked_until <> ?4
    ORDER BY seq LIMIT ?5";

/// All messages of a queue, to look for ids among them: the index alone is read.
pub(crate) const FIND: &str = "SELECT seq, id FROM queue_message WHERE queue = ?1 ORDER BY seq";

const LOAD: &str = "
    SELECT seq, enqueued, deliveries, id, headers, body FROM queue_message
    WHERE seq = ?1 AND (locked_until <= ?2 OR locked_until > ?3) AND locked_until <> ?4";

const LOCK: &str = "
    UPDATE queue_message SET locked_until = ?2, lock = ?3, deliveries = min(deliveries, 4294967294) + 1 WHERE seq = ?1";

/// The time at which the first held message of a queue is free again.
const NEXT_EXPIRY: &str = "
    SELECT min(locked_until) FROM queue_message WHERE queue = ?1 AND locked_until > ?2 AND locked_until <= ?3";

#[derive(Debug)]
pub(crate) struct QueueReceiver {
    file: Arc<File>,
    queue: i64,
    name: Address,
    wake: Arc<Wake>,
    /// When the first message that others hold is free again, as the last receive saw it.
    next_expiry: AtomicI64,
}

/// What was locked.
#[derive(Debug)]
struct Taken {
    token: i64,
    /// When, by the clock of the file.
    now: i64,
    messages: Vec<QueuedMessage>,
    /// Whether there may be more: somebody who shares the receiver may have been told of it and gone to sleep.
    left_some: bool,
}

impl QueueReceiver {
    pub(crate) fn new(file: Arc<File>, queue: i64, name: Address) -> Self {
        let wake = file.shared().wakes.join(Topic::Queue(queue));
        Self { file, queue, name, wake, next_expiry: AtomicI64::new(NEVER) }
    }
}

#[async_trait]
impl Receiver for QueueReceiver {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        let (queue, name, selection) = (self.queue, self.name.clone(), selection.clone());
        let (file, began) = (Arc::clone(&self.file), Instant::now());
        let (lock, taken, next_expiry) = self
            .file
            .write(Operation::Receive, Work::Plain, move |tx| {
                let now = floor_micros(tx.shared.clock.now());
                let taken = take(tx, queue, &name, &selection, now)?;
                let looks_in_vain = taken.messages.is_empty();
                let next_expiry =
                    looks_in_vain.then(|| next_expiry(tx.connection, queue, now)).transpose()?;
                let positions = taken.messages.iter().map(|message| message.position).collect();
                Ok((Lock::new(file, queue, taken.token, positions), taken, next_expiry))
            })
            .await?;
        // Who shares this receiver may be waiting for that still.
        if let Some(next_expiry) = next_expiry {
            self.next_expiry.store(next_expiry, Ordering::Release);
        }
        if taken.left_some {
            self.wake.ring();
        }
        let claim = QueueClaim::new(lock, from_micros(taken.now), began);
        Ok(ReceivedBatch { messages: taken.messages, claim: Box::new(claim) })
    }

    async fn changed(&self) {
        self.file.watch();
        let expiry = self.next_expiry.load(Ordering::Acquire);
        if expiry == NEVER {
            return self.wake.changed().await;
        }
        let wait = from_micros(expiry).duration_since(self.file.now());
        let wait = Duration::try_from(wait).unwrap_or(Duration::ZERO);
        // Either is a reason to look.
        drop(timeout(wait, self.wake.changed()).await);
    }
}

/// Reads a row of position, arrival, deliveries, id, headers and body.
pub(crate) fn read_message(row: &Row<'_>, queue: &Address) -> rusqlite::Result<Content<QueuedMessage>> {
    let position: i64 = row.get(0)?;
    let (enqueued, deliveries) = (from_micros(row.get(1)?), record::small_count(row, 2)?);
    let message = record::message(row, 3, queue.clone())?;
    Ok(message.map(|message| QueuedMessage {
        message,
        position: position.unsigned_abs(),
        enqueued,
        deliveries,
    }))
}

/// The end of a lock that is taken or renewed now.
pub(crate) fn lock_end(now: i64) -> i64 {
    now.saturating_add(i64::try_from(LOCK_TERM.as_micros()).unwrap_or(NEVER))
}

/// No lock that was taken by a right clock ends later: twice the term, because clocks differ a little.
pub(crate) fn believable_end(now: i64) -> i64 {
    lock_end(lock_end(now))
}

/// Locks what is selected and free.
fn take(tx: &Tx<'_>, queue: i64, name: &Address, selection: &Selection, now: i64) -> Result<Taken> {
    let connection = tx.connection;
    let token = connection.prepare_cached("SELECT random()")?.query_row([], |row| row.get(0))?;
    let seqs = select(connection, queue, selection, now)?;
    let mut left_some = matches!(selection, Selection::Next(limit) if seqs.len() == limit.get());
    let mut messages = Vec::new();
    let mut bytes = 0;
    for seq in seqs {
        let mut load = connection.prepare_cached(LOAD)?;
        match load
            .query_row([seq, now, believable_end(now), NEVER], |row| read_message(row, name))
            .optional()?
        {
            None => {}
            Some(Err(unreadable)) => {
                tracing::error!(queue = %name, seq, reason = unreadable.reason(), "quarantined a row");
                connection.prepare_cached(LOCK)?.execute([seq, NEVER, 0])?;
            }
            Some(Ok(message)) => {
                connection.prepare_cached(LOCK)?.execute([seq, lock_end(now), token])?;
                bytes += message.message.size();
                messages.push(message);
                if bytes >= BATCH_BYTES {
                    left_some = true;
                    break;
                }
            }
        }
    }
    Ok(Taken { token, now, messages, left_some })
}

fn select(connection: &Connection, queue: i64, selection: &Selection, now: i64) -> Result<Vec<i64>> {
    match selection {
        Selection::Next(limit) => {
            let limit = i64::try_from(limit.get()).unwrap_or(i64::MAX);
            let mut statement = connection.prepare_cached(NEXT)?;
            let seqs =
                statement.query_map([queue, now, believable_end(now), NEVER, limit], |row| row.get(0))?;
            Ok(seqs.collect::<rusqlite::Result<_>>()?)
        }
        Selection::Ids(ids) => {
            let ids: HashSet<&str> = ids.iter().map(MessageId::as_str).collect();
            let mut statement = connection.prepare_cached(FIND)?;
            let mut rows = statement.query([queue])?;
            let mut seqs = Vec::new();
            while let Some(row) = rows.next()? {
                if row.get_ref(1)?.as_str().is_ok_and(|id| ids.contains(id)) {
                    seqs.push(row.get(0)?);
                }
            }
            Ok(seqs)
        }
    }
}

fn next_expiry(connection: &Connection, queue: i64, now: i64) -> Result<i64> {
    let mut statement = connection.prepare_cached(NEXT_EXPIRY)?;
    let expiry: Option<i64> = statement.query_row([queue, now, believable_end(now)], |row| row.get(0))?;
    Ok(expiry.unwrap_or(NEVER))
}
