//! The lock on fetched messages.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use postdate_core::{
    Claim, Enlistment, Failure, MessageId, Operation, StoreError, StoreErrorKind, TransactionMode,
};
use rusqlite::Connection;

use crate::{
    error::{Fault, Result},
    file::{File, InFlight},
    store::SqliteStore,
    time::after,
    transaction::SqliteTransaction,
    wake::Topic,
    writer::{Tx, Work},
};

const REMOVE: &str = "DELETE FROM message WHERE seq = ?1";

const COUNT_FAILURE: &str = "
    UPDATE message SET failures = failures + 1, attempt_at = ?2, last_error = ?3 WHERE seq = ?1";

/// The hold of one claim on its messages: dropping it gives back what is left.
#[derive(Debug)]
pub(crate) struct Hold {
    file: Arc<File>,
    ticket: Ticket,
}

/// What a claim is known by, within transactions too.
#[derive(Clone, Debug)]
struct Ticket {
    in_flight: Arc<InFlight>,
    topic: Topic,
    number: u64,
}

impl Hold {
    pub(crate) fn new(store: &SqliteStore) -> Self {
        let in_flight = Arc::clone(&store.in_flight);
        let (topic, number) = (Topic::Endpoint(store.endpoint), in_flight.new_claim());
        Self { file: Arc::clone(&store.file), ticket: Ticket { in_flight, topic, number } }
    }

    /// Whether anybody holds a message.
    pub(crate) fn is_taken(&self, seq: i64) -> bool {
        self.ticket.in_flight.is_held(seq)
    }

    /// Holds a message that nobody holds. In a write transaction.
    pub(crate) fn take(&self, seq: i64) {
        self.ticket.in_flight.hold(seq, self.ticket.number);
    }

    /// Gives everything back and waits until other processes see it too.
    async fn give_back(&self, operation: Operation) -> Result<(), StoreError> {
        if self.let_go() {
            self.file.write(operation, Work::Plain, |_| Ok(())).await?;
        }
        Ok(())
    }

    /// Gives everything back in this process and wakes those who may fetch it. `false` if there was nothing.
    fn let_go(&self) -> bool {
        let Ticket { in_flight, topic, number } = &self.ticket;
        let any = in_flight.give_all_back(*number);
        if any {
            // What was fetched is overdue: earlier than whatever they wait for.
            self.file.shared().wakes.ring(*topic, i64::MIN);
        }
        any
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.let_go() {
            // The writer thread tells other processes with its next transaction.
            self.file.write_unasked(Work::Plain, |_| Ok(()));
        }
    }
}

impl Ticket {
    /// After the commit, forgets messages that were removed.
    fn forget(self, tx: &mut Tx<'_>, seqs: Vec<i64>) {
        tx.after_commit(move |_| self.in_flight.forget(&seqs, self.number));
    }

    /// After the commit, gives back what failed and wakes those who wait for less than its retry time.
    fn give_back_failed(self, tx: &mut Tx<'_>, rows: &[FailedRow]) {
        let seqs: Vec<_> = rows.iter().map(|row| row.seq).collect();
        let Some(earliest) = rows.iter().map(|row| row.retry_at).min() else { return };
        tx.ring(self.topic, earliest);
        tx.after_commit(move |_| self.in_flight.give_back(&seqs, self.number));
    }
}

/// The claim. It cannot be lost while the process lives: the dispatch lock goes with the last user of the file.
#[derive(Debug)]
pub(crate) struct SqliteClaim {
    hold: Hold,
    rows: HashMap<MessageId, i64>,
    scope: Option<Scope>,
}

/// What is done at once with everything else when the claim is committed, in
/// [`TransactionScope`](TransactionMode::TransactionScope) mode.
#[derive(Debug)]
struct Scope {
    transaction: SqliteTransaction,
    removed: Vec<i64>,
    failed: Vec<FailedRow>,
}

#[derive(Clone, Debug)]
struct FailedRow {
    seq: i64,
    retry_at: i64,
    error: String,
}

impl SqliteClaim {
    pub(crate) fn new(hold: Hold, rows: Vec<(MessageId, i64)>, mode: TransactionMode) -> Self {
        let scope = (mode == TransactionMode::TransactionScope).then(|| Scope {
            transaction: SqliteTransaction::new(hold.file.identity().clone()),
            removed: Vec::new(),
            failed: Vec::new(),
        });
        Self { hold, rows: rows.into_iter().collect(), scope }
    }

    /// The rows of `ids` as far as this claim holds them.
    fn rows(&self, ids: &[MessageId]) -> Vec<Option<i64>> {
        ids.iter().map(|id| self.rows.get(id).copied()).collect()
    }

    /// Of what was settled nothing is to be given back.
    fn forget<'a>(&mut self, ids: impl IntoIterator<Item = &'a MessageId>) {
        for id in ids {
            self.rows.remove(id);
        }
    }

    fn failed_row(&self, failure: &Failure) -> Option<FailedRow> {
        let seq = *self.rows.get(&failure.id)?;
        let retry_at = after(self.hold.file.now(), failure.retry_after);
        let error = failure.error.chars().take(Failure::MAX_ERROR_CHARS).collect();
        Some(FailedRow { seq, retry_at, error })
    }
}

#[async_trait]
impl Claim for SqliteClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        if let Some(scope) = &mut self.scope {
            let rows = ids.iter().map(|id| self.rows.remove(id));
            return Ok(rows.map(|row| row.map(|seq| scope.removed.push(seq)).is_some()).collect());
        }
        let (rows, ticket) = (self.rows(ids), self.hold.ticket.clone());
        let removed = self
            .hold
            .file
            .write(Operation::Remove, Work::Plain, move |tx| {
                let removed = each(&rows, |seq| remove(tx.connection, seq))?;
                ticket.forget(tx, rows.into_iter().flatten().collect());
                Ok(removed)
            })
            .await?;
        self.forget(ids);
        Ok(removed)
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let mut seen = HashSet::with_capacity(failures.len());
        let mut row = |failure| self.failed_row(failure).filter(|row| seen.insert(row.seq));
        let rows: Vec<_> = failures.iter().map(&mut row).collect();
        if let Some(scope) = &mut self.scope {
            let held: Vec<_> = failures.iter().map(|f| self.rows.remove(&f.id).is_some()).collect();
            let rows = rows.into_iter().zip(&held).filter_map(|(row, held)| row.filter(|_| *held));
            scope.failed.extend(rows);
            return Ok(held);
        }
        let ticket = self.hold.ticket.clone();
        let counted = self
            .hold
            .file
            .write(Operation::IncrementFailureCount, Work::Plain, move |tx| {
                let counted = each(&rows, |row| count_failure(tx.connection, &row))?;
                let rows: Vec<_> = rows.into_iter().flatten().collect();
                ticket.give_back_failed(tx, &rows);
                Ok(counted)
            })
            .await?;
        self.forget(failures.iter().map(|failure| &failure.id));
        Ok(counted)
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        let seqs: Vec<_> = ids.iter().filter_map(|id| self.rows.remove(id)).collect();
        if seqs.is_empty() {
            return Ok(());
        }
        let Ticket { in_flight, topic, number } = &self.hold.ticket;
        in_flight.give_back(&seqs, *number);
        self.hold.file.shared().wakes.ring(*topic, i64::MIN);
        // The answer comes after other processes see it too.
        self.hold.file.write(Operation::Release, Work::Plain, |_| Ok(())).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        None
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        self.scope.as_mut().map(|scope| Enlistment::new(&mut scope.transaction))
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        if let Some(scope) = self.scope.take().filter(|scope| !scope.is_empty()) {
            let ticket = self.hold.ticket.clone();
            let commit = move |tx: &mut Tx<'_>| scope.commit(tx, ticket);
            self.hold.file.write(Operation::Commit, Work::Undoable, commit).await?;
        }
        self.hold.give_back(Operation::Commit).await
    }
}

impl Scope {
    fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.failed.is_empty() && self.transaction.is_empty()
    }

    /// Sends, removes and counts failures, all or nothing.
    fn commit(self, tx: &mut Tx<'_>, ticket: Ticket) -> Result<()> {
        self.transaction.send(tx)?;
        for seq in &self.removed {
            if !remove(tx.connection, *seq)? {
                return Err(lost());
            }
        }
        for row in &self.failed {
            if !count_failure(tx.connection, row)? {
                return Err(lost());
            }
        }
        ticket.clone().give_back_failed(tx, &self.failed);
        ticket.forget(tx, self.removed);
        Ok(())
    }
}

fn lost() -> Fault {
    let detail = "a message of the claim is gone; nothing was sent or removed, fetch again";
    Fault::new(StoreErrorKind::ClaimLost, detail)
}

/// One answer for each row: `false` for those that the claim does not hold.
fn each<T: Clone>(rows: &[Option<T>], mut act: impl FnMut(T) -> Result<bool>) -> Result<Vec<bool>> {
    rows.iter().map(|row| row.clone().map_or(Ok(false), &mut act)).collect()
}

fn remove(connection: &Connection, seq: i64) -> Result<bool> {
    Ok(connection.prepare_cached(REMOVE)?.execute([seq])? == 1)
}

fn count_failure(connection: &Connection, row: &FailedRow) -> Result<bool> {
    let mut statement = connection.prepare_cached(COUNT_FAILURE)?;
    Ok(statement.execute((row.seq, row.retry_at, &row.error))? == 1)
}
