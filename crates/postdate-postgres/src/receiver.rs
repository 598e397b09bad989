//! Receiving from a queue of the schema.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use postdate_core::{
    MessageId, Operation, QueuedMessage, ReceivedBatch, Receiver, Selection, StoreError, wake::Wake,
};
use sqlx::{Row, postgres::PgRow};

use crate::{
    error::{Fault, Result},
    place::within,
    queues::{Queue, message},
    receive_claim::{Lock, QueueClaim},
    sql::query,
    time::PgInstant,
};

/// A batch ends when its bodies are this large together, in bytes.
const BATCH_BYTES: i64 = 16 << 20;

/// Other receivers lock what they take, and at times what they leave, for a moment: who finds all that is free locked
/// looks again after these pauses, and then comes back later.
const PAUSES: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(4), Duration::from_millis(16)];
const LATER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct QueueReceiver {
    queue: Arc<Queue>,
    wake: Arc<Wake>,
    /// When something that others hold is free again, as the last look in vain saw it.
    look_again: Mutex<Option<Instant>>,
}

/// What was received.
#[derive(Debug)]
struct Taken {
    lock: Lock,
    messages: Vec<QueuedMessage>,
    /// When, by the server's clock.
    now: PgInstant,
    /// When the call began that took it.
    began: Instant,
    rest: Rest,
}

/// What else there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// Nothing is known of it.
    Unknown,
    /// There may be more: somebody who shares the receiver may have been told of it and gone to sleep.
    More,
    /// Nothing is to be had until this time.
    Later(Option<Instant>),
}

/// The answer to a receiver that got nothing.
struct Look {
    anything_is_free: bool,
    /// When the first lease ends.
    end: Option<PgInstant>,
    now: PgInstant,
}

impl QueueReceiver {
    pub(crate) fn new(queue: Arc<Queue>) -> Self {
        let wake = queue.place.wakes.join(queue.topic());
        Self { queue, wake, look_again: Mutex::default() }
    }
}

#[async_trait]
impl Receiver for QueueReceiver {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        let (queue, selection) = (Arc::clone(&self.queue), selection.clone());
        // As a task: if the caller goes away its answer is dropped, and with it the lock.
        let take = tokio::spawn(async move { within(take(&queue, &selection)).await });
        let taken = take.await.unwrap_or_else(|_| Err(Fault::interrupted()));
        let taken = taken.map_err(|fault| self.queue.place.error(fault, Operation::Receive))?;
        match taken.rest {
            Rest::Unknown => {}
            Rest::More => self.wake.ring(),
            // Who shares this receiver may be waiting for that still.
            Rest::Later(at) => *self.look_again.lock().unwrap_or_else(PoisonError::into_inner) = at,
        }
        let claim = QueueClaim::new(taken.lock, taken.now.timestamp(), taken.began);
        Ok(ReceivedBatch { messages: taken.messages, claim: Box::new(claim) })
    }

    async fn changed(&self) {
        let look_again = *self.look_again.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.queue.place.changed(&self.wake);
        match look_again {
            None => changed.await,
            // Either is a reason to look.
            Some(at) => drop(tokio::time::timeout_at(at.into(), changed).await),
        }
    }
}

/// Takes what is selected and free.
async fn take(queue: &Arc<Queue>, selection: &Selection) -> Result<Taken> {
    let mut pauses = PAUSES.into_iter();
    queue.released().await;
    loop {
        let began = Instant::now();
        let token = token();
        let rows = receive(queue, selection, token).await?;
        let lock =
            Lock::new(queue, token, rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?);
        if let Some(row) = rows.first() {
            let now = row.try_get_unchecked(6)?;
            let (messages, rest) = read(queue, &lock, selection, &rows).await?;
            if !messages.is_empty() {
                return Ok(Taken { lock, messages, now, began, rest });
            }
            continue;
        }
        let Look { anything_is_free, end, now } = look(queue, selection).await?;
        match pauses.next() {
            Some(pause) if anything_is_free => tokio::time::sleep(pause).await,
            _ => {
                let until = |end: PgInstant| Duration::from_micros(end.micros().abs_diff(now.micros()));
                let wait = end.map(until).into_iter().chain(anything_is_free.then_some(LATER)).min();
                let rest = Rest::Later(wait.and_then(|wait| Instant::now().checked_add(wait)));
                return Ok(Taken { lock, messages: Vec::new(), now, began, rest });
            }
        }
    }
}

async fn receive(queue: &Queue, selection: &Selection, token: i64) -> Result<Vec<PgRow>> {
    let limit = match selection {
        Selection::Next(limit) => i64::try_from(limit.get()).unwrap_or(i64::MAX),
        Selection::Ids(_) => i64::MAX,
    };
    let mut connection = queue.place.connections.lend().await?;
    let receive = query(&queue.place.sql.receive).bind(queue.number).bind(token).bind(ids(selection));
    let mut rows = receive.bind(limit).bind(BATCH_BYTES).fetch_all(&mut *connection).await?;
    connection.give_back();
    // They come in any order.
    rows.sort_by_cached_key(|row| row.try_get::<i64, _>(0).unwrap_or_default());
    Ok(rows)
}

/// Reads what was received. Puts aside what cannot be read.
async fn read(
    queue: &Queue,
    lock: &Lock,
    selection: &Selection,
    rows: &[PgRow],
) -> Result<(Vec<QueuedMessage>, Rest)> {
    let (mut messages, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match message(row, &queue.name)? {
            Ok(message) => messages.push(message),
            Err(reason) => {
                let seq: i64 = row.try_get(0)?;
                tracing::error!(queue = %queue.name, seq, reason = reason.reason(), "quarantined a row");
                unreadable.push(seq);
            }
        }
    }
    if !unreadable.is_empty() {
        lock.put_aside(unreadable).await?;
    }
    let bytes: usize = messages.iter().map(|queued| queued.message.size()).sum();
    let is_full = matches!(selection, Selection::Next(limit) if rows.len() == limit.get())
        || i64::try_from(bytes).is_ok_and(|bytes| bytes >= BATCH_BYTES);
    Ok((messages, if is_full { Rest::More } else { Rest::Unknown }))
}

async fn look(queue: &Queue, selection: &Selection) -> Result<Look> {
    let mut connection = queue.place.connections.lend().await?;
    let look = query(&queue.place.sql.look).bind(queue.number).bind(ids(selection));
    let row = look.fetch_one(&mut *connection).await?;
    connection.give_back();
    Ok(Look {
        anything_is_free: row.try_get(0)?,
        end: row.try_get_unchecked(1)?,
        now: row.try_get_unchecked(2)?,
    })
}

fn ids(selection: &Selection) -> Option<Vec<&str>> {
    match selection {
        Selection::Next(_) => None,
        Selection::Ids(ids) => Some(ids.iter().map(MessageId::as_str).collect()),
    }
}

/// What nobody else has. No lock is 0.
fn token() -> i64 {
    RandomState::new().hash_one(std::process::id()).max(1).cast_signed()
}
