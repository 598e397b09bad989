//! The lock on fetched messages.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use async_trait::async_trait;
use postdate_core::{
    Claim, Enlistment, Failure, MessageId, Operation, StoreError, StoreErrorKind, TransactionMode,
};
use rusqlite::{Connection, Statement};

use crate::{
    error::{Fault, Result},
    hold::{Held, Hold},
    time::after,
    transaction::SqliteTransaction,
    writer::{Tx, Work},
};

const IS_THERE: &str = "SELECT 1 FROM message WHERE seq = ?1";

const REMOVE: &str = "DELETE FROM message WHERE seq = ?1";

/// A count that somebody else made great stays within what is read, or SQLite would make it a floating point number.
const COUNT_FAILURE: &str = "
    UPDATE message SET failures = min(failures, 4294967294) + 1, attempt_at = ?2, last_error = ?3 WHERE seq = ?1";

/// The claim. It cannot be lost while the process lives: the dispatch lock goes with the last user of the file.
#[derive(Debug)]
pub(crate) struct SqliteClaim {
    hold: Hold,
    /// The sequence numbers of what was neither settled nor given back.
    rows: HashMap<MessageId, i64>,
    scope: Option<Scope>,
}

/// What is done in one transaction when the claim is committed, in
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
            transaction: SqliteTransaction::new(hold.file().identity().clone()),
            removed: Vec::new(),
            failed: Vec::new(),
        });
        Self { hold, rows: rows.into_iter().collect(), scope }
    }

    /// The rows of `failures` as far as this claim holds them. An attempt fails once: if a message is named again
    /// there is no row for it.
    fn failed_rows(&self, failures: &[Failure]) -> Vec<Option<FailedRow>> {
        let (now, mut seen) = (self.hold.file().now(), HashSet::new());
        let row = |failure: &Failure| {
            let seq = *self.rows.get(&failure.id).filter(|seq| seen.insert(**seq))?;
            let error = failure.error.chars().take(Failure::MAX_ERROR_CHARS).collect();
            Some(FailedRow { seq, retry_at: after(now, failure.retry_after), error })
        };
        failures.iter().map(row).collect()
    }

    /// What was settled is not to be settled again.
    fn forget<'a>(&mut self, ids: impl IntoIterator<Item = &'a MessageId>) {
        for id in ids {
            self.rows.remove(id);
        }
    }
}

#[async_trait]
impl Claim for SqliteClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        if let Some(scope) = &mut self.scope {
            let rows = ids.iter().map(|id| self.rows.remove(id));
            return Ok(rows.map(|row| row.map(|seq| scope.removed.push(seq)).is_some()).collect());
        }
        let rows: Vec<_> = ids.iter().map(|id| self.rows.get(id).copied()).collect();
        let held = self.hold.held().clone();
        let remove = move |tx: &mut Tx<'_>| {
            let mut remove = tx.connection.prepare_cached(REMOVE)?;
            let removed = each(&rows, |seq| Ok(remove.execute([seq])? == 1))?;
            let seqs: Vec<_> = rows.into_iter().flatten().collect();
            tx.after_commit(move || held.forget(&seqs));
            Ok(removed)
        };
        let removed = self.hold.file().write(Operation::Remove, Work::Plain, remove).await?;
        self.forget(ids);
        Ok(removed)
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let rows = self.failed_rows(failures);
        let ids = failures.iter().map(|failure| &failure.id);
        if let Some(scope) = &mut self.scope {
            let held = rows.iter().map(Option::is_some).collect();
            scope.failed.extend(rows.into_iter().flatten());
            self.forget(ids);
            return Ok(held);
        }
        let held = self.hold.held().clone();
        let count = move |tx: &mut Tx<'_>| {
            let mut count = tx.connection.prepare_cached(COUNT_FAILURE)?;
            let counted = each(&rows, |row| count_failure(&mut count, row))?;
            give_back(tx, rows.into_iter().flatten(), held);
            Ok(counted)
        };
        let counted = self.hold.file().write(Operation::IncrementFailureCount, Work::Plain, count).await?;
        self.forget(ids);
        Ok(counted)
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        let seqs: Vec<_> = ids.iter().filter_map(|id| self.rows.remove(id)).collect();
        if seqs.is_empty() {
            return Ok(());
        }
        self.hold.give_back(Operation::Release, &seqs).await
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
            let held = self.hold.held().clone();
            let commit = move |tx: &mut Tx<'_>| scope.commit(tx, held);
            self.hold.file().write(Operation::Commit, Work::Plain, commit).await?;
        }
        self.hold.give_all_back(Operation::Commit).await
    }
}

impl Scope {
    fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.failed.is_empty() && self.transaction.is_empty()
    }

    /// Removes, sends and counts failures, all or nothing. Looking first costs less than a savepoint, which copies
    /// every page. Removing before sending lets the queue have the pages that become free.
    fn commit(self, tx: &mut Tx<'_>, held: Held) -> Result<()> {
        let failed = self.failed.iter().map(|row| row.seq);
        require(tx.connection, self.removed.iter().copied().chain(failed))?;
        let mut remove = tx.connection.prepare_cached(REMOVE)?;
        for seq in &self.removed {
            remove.execute([seq])?;
        }
        self.transaction.send(tx)?;
        let mut count = tx.connection.prepare_cached(COUNT_FAILURE)?;
        for row in &self.failed {
            count_failure(&mut count, row)?;
        }
        give_back(tx, self.failed, held.clone());
        tx.after_commit(move || held.forget(&self.removed));
        Ok(())
    }
}

/// All rows must be there, or nothing of the claim happens.
fn require(connection: &Connection, seqs: impl Iterator<Item = i64>) -> Result<()> {
    let mut is_there = connection.prepare_cached(IS_THERE)?;
    for seq in seqs {
        if !is_there.exists([seq])? {
            let detail = "a message of the claim is gone; nothing was sent or removed, fetch again";
            return Err(Fault::new(StoreErrorKind::ClaimLost, detail));
        }
    }
    Ok(())
}

/// One answer for each row: `false` for those that the claim does not hold.
fn each<T>(rows: &[Option<T>], mut act: impl FnMut(&T) -> Result<bool>) -> Result<Vec<bool>> {
    rows.iter().map(|row| row.as_ref().map_or(Ok(false), &mut act)).collect()
}

fn count_failure(statement: &mut Statement<'_>, row: &FailedRow) -> Result<bool> {
    Ok(statement.execute((row.seq, row.retry_at, &row.error))? == 1)
}

/// After the commit, gives back what failed and wakes those who wait for something after its retry time.
fn give_back(tx: &mut Tx<'_>, rows: impl IntoIterator<Item = FailedRow>, held: Held) {
    let mut seqs = Vec::new();
    for row in rows {
        tx.ring(held.topic(), row.retry_at);
        seqs.push(row.seq);
    }
    tx.after_commit(move || held.give_back(&seqs));
}
