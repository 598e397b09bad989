//! The lock on received messages.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{Address, Operation, ReceiveClaim, StoreError, StoreErrorKind, wake::Topic};
use rusqlite::Connection;

use crate::{
    error::{Fault, Result},
    file::File,
    queues,
    receiver::{LOCK_TERM, lock_end},
    time::floor_micros,
    writer::{Tx, Work},
};

const COMPLETE: &str = "DELETE FROM queue_message WHERE seq = ?1 AND lock = ?2";

const ABANDON: &str = "UPDATE queue_message SET locked_until = 0, lock = 0 WHERE seq = ?1 AND lock = ?2";

/// As if it had never been received.
const UNDO: &str = "
    UPDATE queue_message SET locked_until = 0, lock = 0, deliveries = deliveries - 1
    WHERE seq = ?1 AND lock = ?2";

const IS_HELD: &str = "SELECT 1 FROM queue_message WHERE seq = ?1 AND lock = ?2";

const RENEW: &str = "UPDATE queue_message SET locked_until = ?3 WHERE seq = ?1 AND lock = ?2";

const COPY: &str = "
    INSERT INTO queue_message (queue, enqueued, id, headers, body)
    SELECT ?3, ?4, id, headers, body FROM queue_message WHERE seq = ?1 AND lock = ?2";

const LOST: &str = "the lock ran out and others took what it held; nothing was renewed, receive again";

/// Locked rows: dropping this unlocks what is left of them.
///
/// The token is the fence: it is new for every receive, so a lock that ran out and was taken by others answers to
/// another token.
#[derive(Debug)]
pub(crate) struct Lock {
    file: Arc<File>,
    queue: i64,
    token: i64,
    /// What is still to be answered. The writer thread strikes off what it has settled, also for a caller who went
    /// away meanwhile.
    held: Held,
    release: &'static str,
}

#[derive(Clone, Debug)]
struct Held(Arc<Mutex<BTreeSet<u64>>>);

impl Lock {
    /// A lock that was just taken. Unless it is [kept](Self::keep), its receiver went away before it heard of it.
    pub(crate) fn new(file: Arc<File>, queue: i64, token: i64, positions: BTreeSet<u64>) -> Self {
        Self { file, queue, token, held: Held(Arc::new(Mutex::new(positions))), release: UNDO }
    }

    fn keep(&mut self) {
        self.release = ABANDON;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let positions = self.held.positions();
        if positions.is_empty() {
            return;
        }
        let (queue, token, release) = (self.queue, self.token, self.release);
        self.file.write_unasked(Work::Plain, move |tx| {
            each(tx.connection, release, &positions, token)?;
            tx.ring(Topic::Queue(queue), i64::MIN);
            Ok(())
        });
    }
}

impl Held {
    fn positions(&self) -> Vec<u64> {
        self.lock().iter().copied().collect()
    }

    /// Whether the answer was true or false: a row without the token is not ours any more, and never will be.
    fn strike_off(&self, answered: &[u64]) {
        let mut held = self.lock();
        for position in answered {
            held.remove(position);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct QueueClaim {
    lock: Lock,
    received: Timestamp,
    expires: Option<Instant>,
}

impl QueueClaim {
    /// `received` is when by the clock of the file, `began` when the call that took the lock began.
    pub(crate) fn new(mut lock: Lock, received: Timestamp, began: Instant) -> Self {
        lock.keep();
        Self { lock, received, expires: began.checked_add(LOCK_TERM) }
    }

    async fn settle<F>(&mut self, positions: &[u64], act: F) -> Result<Vec<bool>, StoreError>
    where
        F: FnOnce(&mut Tx<'_>, &[u64], i64) -> Result<Vec<bool>> + Send + 'static,
    {
        let (token, held, positions) = (self.lock.token, self.lock.held.clone(), positions.to_vec());
        let act = move |tx: &mut Tx<'_>| {
            let settled = act(tx, &positions, token)?;
            tx.after_commit(move || held.strike_off(&positions));
            Ok(settled)
        };
        self.lock.file.write(Operation::Settle, Work::Plain, act).await
    }
}

#[async_trait]
impl ReceiveClaim for QueueClaim {
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let complete =
            |tx: &mut Tx<'_>, positions: &[u64], token| each(tx.connection, COMPLETE, positions, token);
        self.settle(positions, complete).await
    }

    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let queue = self.lock.queue;
        let abandon = move |tx: &mut Tx<'_>, positions: &[u64], token| {
            tx.ring(Topic::Queue(queue), i64::MIN);
            each(tx.connection, ABANDON, positions, token)
        };
        self.settle(positions, abandon).await
    }

    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError> {
        let queue = queue.clone();
        let move_to = move |tx: &mut Tx<'_>, positions: &[u64], token| {
            let target = queues::number(tx.connection, &queue)?;
            let now = floor_micros(tx.shared.clock.now());
            tx.ring(Topic::Queue(target), i64::MIN);
            let mut copy = tx.connection.prepare_cached(COPY)?;
            let mut complete = tx.connection.prepare_cached(COMPLETE)?;
            // One after the other: a position that is named again finds nothing to copy.
            let moved = positions.iter().map(|position| {
                let seq = seq(*position);
                Ok(copy.execute((seq, token, target, now))? == 1 && complete.execute([seq, token])? == 1)
            });
            moved.collect()
        };
        self.settle(positions, move_to).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let (token, held, began) = (self.lock.token, self.lock.held.clone(), Instant::now());
        let renew = move |tx: &mut Tx<'_>| {
            let positions = held.positions();
            let mut is_held = tx.connection.prepare_cached(IS_HELD)?;
            for position in &positions {
                if !is_held.exists([seq(*position), token])? {
                    return Err(Fault::new(StoreErrorKind::ClaimLost, LOST));
                }
            }
            let end = lock_end(floor_micros(tx.shared.clock.now()));
            let mut renew = tx.connection.prepare_cached(RENEW)?;
            positions
                .iter()
                .try_for_each(|position| Ok(renew.execute([seq(*position), token, end]).map(drop)?))
        };
        self.lock.file.write(Operation::Renew, Work::Plain, renew).await?;
        self.expires = began.checked_add(LOCK_TERM);
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn received(&self) -> Option<Timestamp> {
        Some(self.received)
    }
}

/// Executes a statement of position and token for each; says where it found the row.
fn each(connection: &Connection, sql: &str, positions: &[u64], token: i64) -> Result<Vec<bool>> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = positions.iter().map(|position| Ok(statement.execute([seq(*position), token])? == 1));
    found.collect()
}

/// A position that was never given out has no row.
fn seq(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}
