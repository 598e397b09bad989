//! The lock on received messages.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{Address, Operation, ReceiveClaim, StoreError, StoreErrorKind, wake::Topic};
use sqlx::Row;
use tokio::{runtime::Handle, sync::Mutex};

use crate::{
    error::{Fault, Result},
    place::within,
    queues::Queue,
    sql::{Statements, query},
};

/// How long a received message is hidden from others unless its receiver renews.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

const LOST: &str = "the lock ran out and others took what it held; nothing was renewed, receive again";

/// Locked rows: dropping this unlocks what is left of them.
#[derive(Debug)]
pub(crate) struct Lock {
    locked: Arc<Locked>,
    /// The statement that unlocks.
    release: fn(&Statements) -> &Arc<str>,
    runtime: Handle,
}

/// The token is the fence: it is new for every receive, so a lock that ran out and was taken by others answers to
/// another token.
#[derive(Debug)]
struct Locked {
    queue: Arc<Queue>,
    token: i64,
    /// What is still to be answered. Whoever settles holds this: one call after the other, also those whose callers
    /// went away.
    held: Mutex<BTreeSet<i64>>,
}

/// What becomes of a message.
#[derive(Debug)]
enum Settlement {
    Complete,
    Abandon,
    Move(Address),
}

impl Lock {
    /// A lock that was just taken. Unless it is [kept](Self::keep), its receiver went away before it heard of it.
    pub(crate) fn new(queue: &Arc<Queue>, token: i64, held: BTreeSet<i64>) -> Self {
        let locked = Locked { queue: Arc::clone(queue), token, held: Mutex::new(held) };
        Self { locked: Arc::new(locked), release: |sql| &sql.undo_receive, runtime: Handle::current() }
    }

    fn keep(&mut self) {
        self.release = |sql| &sql.abandon;
    }

    /// Locks rows for ever.
    pub(crate) async fn put_aside(&self, seqs: Vec<i64>) -> Result<()> {
        let mut held = self.locked.held.lock().await;
        self.locked.execute(&self.locked.queue.place.sql.put_aside, &seqs).await?;
        held.retain(|seq| !seqs.contains(seq));
        Ok(())
    }
}

/// Without its runtime nothing can be done: then the lease ends by itself.
impl Drop for Lock {
    fn drop(&mut self) {
        if self.locked.held.try_lock().is_ok_and(|held| held.is_empty()) {
            return;
        }
        let (locked, release) = (Arc::clone(&self.locked), self.release);
        let releasing = locked.queue.releasing();
        self.runtime.spawn(async move {
            let held = locked.held.lock().await;
            let seqs: Vec<i64> = held.iter().copied().collect();
            let place = &locked.queue.place;
            match within(locked.execute(release(&place.sql), &seqs)).await {
                Ok(_) => place.arrived(locked.queue.topic()),
                Err(fault) => {
                    tracing::debug!(?fault, "received messages were not given back before their lease ends")
                }
            }
            drop(releasing);
        });
    }
}

impl Locked {
    /// Executes a statement for rows with our token, and says which it found.
    async fn execute(&self, statement: &Arc<str>, seqs: &[i64]) -> Result<HashSet<i64>> {
        let mut connection = self.queue.place.connections.lend().await?;
        let statement = query(statement).bind(self.queue.number).bind(seqs).bind(self.token);
        let rows = statement.fetch_all(&mut *connection).await?;
        connection.give_back();
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?)
    }

    async fn settle(&self, how: &Settlement, seqs: &[i64]) -> Result<HashSet<i64>> {
        let place = &self.queue.place;
        match how {
            Settlement::Complete => self.execute(&place.sql.complete, seqs).await,
            Settlement::Abandon => {
                let abandoned = self.execute(&place.sql.abandon, seqs).await?;
                place.arrived(self.queue.topic());
                Ok(abandoned)
            }
            Settlement::Move(target) => self.move_to(target, seqs).await,
        }
    }

    async fn move_to(&self, target: &Address, seqs: &[i64]) -> Result<HashSet<i64>> {
        let place = &self.queue.place;
        let mut connection = place.connections.lend().await?;
        let move_to = query(&place.sql.move_to).bind(self.queue.number).bind(seqs).bind(self.token);
        let row = move_to.bind(target.as_str()).fetch_one(&mut *connection).await?;
        connection.give_back();
        let number: Option<i32> = row.try_get(0)?;
        let number = number.ok_or_else(|| Fault::no_such_queue(target))?;
        place.arrived(Topic::Queue(number.into()));
        let moved: Vec<i64> = row.try_get(1)?;
        Ok(moved.into_iter().collect())
    }

    async fn renew(&self) -> Result<()> {
        let held = self.held.lock().await;
        let seqs: Vec<i64> = held.iter().copied().collect();
        let place = &self.queue.place;
        let mut connection = place.connections.lend().await?;
        let renew = query(&place.sql.renew).bind(self.queue.number).bind(&seqs).bind(self.token);
        let renewed = renew.execute(&mut *connection).await?.rows_affected();
        connection.give_back();
        if renewed == seqs.len() as u64 { Ok(()) } else { Err(Fault::new(StoreErrorKind::ClaimLost, LOST)) }
    }
}

#[derive(Debug)]
pub(crate) struct QueueClaim {
    lock: Lock,
    received: Timestamp,
    expires: Option<Instant>,
}

impl QueueClaim {
    /// `received` is when by the clock of the server, `began` when the call that took the lock began.
    pub(crate) fn new(mut lock: Lock, received: Timestamp, began: Instant) -> Self {
        lock.keep();
        Self { lock, received, expires: began.checked_add(LEASE) }
    }

    /// As a task: a caller who goes away must not leave it half-done.
    async fn settle(&self, positions: &[u64], how: Settlement) -> Result<Vec<bool>, StoreError> {
        // A position that was never given out has no row.
        let seq = |position: &u64| i64::try_from(*position).ok();
        let mut named = HashSet::new();
        let seqs: Vec<i64> = positions.iter().filter_map(seq).filter(|seq| named.insert(*seq)).collect();
        let locked = Arc::clone(&self.lock.locked);
        let settle = tokio::spawn(async move {
            let mut held = locked.held.lock().await;
            let settled = within(locked.settle(&how, &seqs)).await?;
            // Whether the answer is true or false: a row without the token is not ours any more, and never will be.
            held.retain(|seq| !named.contains(seq));
            Ok(settled)
        });
        let settled = settle.await.unwrap_or_else(|_| Err(Fault::interrupted()));
        let mut settled = settled.map_err(|fault| self.error(fault, Operation::Settle))?;
        Ok(positions.iter().map(|position| seq(position).is_some_and(|seq| settled.remove(&seq))).collect())
    }

    fn error(&self, fault: Fault, operation: Operation) -> StoreError {
        self.lock.locked.queue.place.error(fault, operation)
    }
}

#[async_trait]
impl ReceiveClaim for QueueClaim {
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        self.settle(positions, Settlement::Complete).await
    }

    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        self.settle(positions, Settlement::Abandon).await
    }

    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError> {
        self.settle(positions, Settlement::Move(queue.clone())).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let (locked, began) = (Arc::clone(&self.lock.locked), Instant::now());
        let renew = tokio::spawn(async move { within(locked.renew()).await });
        let renewed = renew.await.unwrap_or_else(|_| Err(Fault::interrupted()));
        renewed.map_err(|fault| self.error(fault, Operation::Renew))?;
        self.expires = began.checked_add(LEASE);
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn received(&self) -> Option<Timestamp> {
        Some(self.received)
    }
}
