//! One group of jobs, one transaction.

use std::{
    sync::{Arc, atomic::Ordering, mpsc::Receiver},
    time::{Duration, Instant},
};

use postdate_core::StoreErrorKind;
use rusqlite::Connection;

use super::{
    gather::Gatherer,
    job::{Effects, Job, Tx, Work},
};
use crate::{
    error::{Fault, Result},
    file::Shared,
};

/// The writer thread's state.
///
/// Its connection never commits less hard than it was opened to. What one commit leaves to the sync of the next is
/// lost if that sync fails: when it is repeated the system has forgotten what it was about, and whatever is
/// acknowledged later stands in the log behind a hole.
pub(super) struct Worker {
    connection: Connection,
    shared: Arc<Shared>,
    /// Changes whenever another connection has committed.
    data_version: Option<i64>,
}

impl Worker {
    /// Notes at once where the others stand: what they commit from now on is news.
    pub(super) fn new(connection: Connection, shared: Arc<Shared>) -> Self {
        let data_version = data_version(&connection).ok();
        Self { connection, shared, data_version }
    }

    pub(super) fn run(mut self, queue: Receiver<Box<dyn Job>>) {
        let mut gatherer = Gatherer::new(queue);
        let mut took = Duration::ZERO;
        while let Some(mut group) = gatherer.next(took) {
            group.retain(|job| job.is_wanted());
            let begin = Instant::now();
            if !group.is_empty() {
                self.commit_group(group);
            }
            took = begin.elapsed();
        }
    }

    fn commit_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        let mut effects = Vec::with_capacity(group.len());
        let outcome = self.transact(&mut group, &mut effects);
        if let Err(fault) = &outcome {
            tracing::debug!(?fault, jobs = group.len(), "transaction rolled back");
            self.roll_back();
            if fault.kind() == StoreErrorKind::Full {
                self.write_log_back();
            }
        } else {
            effects.into_iter().for_each(|effects| effects.apply(&self.shared));
        }
        self.publish();
        let broken = outcome.err();
        group.into_iter().for_each(|job| job.answer(broken.as_ref()));
    }

    fn transact(&mut self, group: &mut [Box<dyn Job>], effects: &mut Vec<Effects>) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        self.look_for_others()?;
        // Callers may have gone away while others kept the file locked.
        for job in group.iter_mut().filter(|job| job.is_wanted()) {
            if let Some(done) = self.run_job(&mut **job)? {
                effects.push(done);
            }
        }
        // Where nothing was claimed others merely believe for longer that something is held: `publish` tries again.
        if let Err(fault) = self.shared.dispatching.publish()
            && self.shared.dispatching.hides_claims()
        {
            return Err(fault);
        }
        self.execute("COMMIT")
    }

    /// Does one job. `None` if it failed and has left no trace, an error if the whole transaction is spoilt.
    fn run_job(&self, job: &mut dyn Job) -> Result<Option<Effects>> {
        let undoable = job.work() == Work::Undoable;
        if undoable {
            self.execute("SAVEPOINT job")?;
        }
        let before = self.connection.total_changes();
        let mut tx = Tx::new(&self.connection, &self.shared);
        let outcome = job.run(&mut tx);
        let effects = tx.into_effects();
        let Err(fault) = outcome else {
            if undoable {
                self.execute("RELEASE job")?;
            }
            return Ok(Some(effects));
        };
        // After some failures SQLite has already rolled back, the others' work included.
        if self.connection.is_autocommit() {
            return Err(fault);
        }
        if undoable {
            self.execute("ROLLBACK TO job")?;
            self.execute("RELEASE job")?;
        } else if self.connection.total_changes() != before {
            return Err(fault);
        }
        Ok(None)
    }

    /// Wakes everybody if another connection has committed. Own commits do not count: those who wait were woken
    /// for them where they had reason.
    fn look_for_others(&mut self) -> Result<()> {
        let version = data_version(&self.connection)?;
        if self.data_version.replace(version) != Some(version) {
            self.shared.wakes.ring_all();
        }
        self.shared.looks.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Tells other processes what this transaction gave back, in a transaction that writes nothing and so costs
    /// no sync. If that fails they believe for a little longer that it is held: the next group tries again.
    fn publish(&self) {
        if !self.shared.dispatching.is_unpublished() {
            return;
        }
        let published = self
            .execute("BEGIN IMMEDIATE")
            .and_then(|()| self.shared.dispatching.publish())
            .and_then(|()| self.execute("COMMIT"));
        if let Err(fault) = published {
            tracing::warn!(?fault, "other processes see messages as held that were given back");
            self.roll_back();
        }
    }

    /// Makes room in the log by writing it back to the database. Where the database has free pages it need not
    /// grow for that, and then messages can leave while the disk is full.
    fn write_log_back(&self) {
        if let Err(error) = self.connection.execute_batch("PRAGMA wal_checkpoint") {
            tracing::debug!(%error, "cannot make room in the log");
        }
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(fault) = self.execute("ROLLBACK")
        {
            tracing::error!(?fault, "cannot roll back");
        }
    }

    fn execute(&self, sql: &str) -> Result<()> {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute([]).map(drop).map_err(Fault::from)
    }
}

impl Drop for Worker {
    /// Also after a panic: nothing can be claimed here any more, so others should be able to.
    fn drop(&mut self) {
        self.shared.dispatching.free_locks();
    }
}

fn data_version(connection: &Connection) -> Result<i64> {
    let mut statement = connection.prepare_cached("PRAGMA data_version")?;
    Ok(statement.query_row([], |row| row.get(0))?)
}
