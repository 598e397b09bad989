//! The lock on fetched messages.

use std::{collections::HashMap, sync::Arc, time::Instant};

use async_trait::async_trait;
use postdate_core::{
    Claim, Enlistment, Failure, MessageId, Operation, StoreError, StoreErrorKind, TransactionMode,
};
use tokio::runtime::Handle;

use crate::{
    error::{Fault, Result},
    place::within,
    sql::query,
    store::Shared,
    time::{Tid, interval},
    transaction::PostgresTransaction,
};

/// A claim: rows locked in an open transaction.
///
/// What is removed or counted is noted, and done all at once before the commit: when everything is settled, or the
/// claim is committed or, in every mode but [`TransactionScope`](TransactionMode::TransactionScope), dropped.
#[derive(Debug)]
pub(crate) struct PostgresClaim {
    shared: Arc<Shared>,
    state: State,
    /// What is neither settled nor given back.
    held: HashMap<MessageId, Held>,
    settled: Settled,
    expires: Option<Instant>,
}

/// A locked row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) tid: Option<Tid>,
}

#[derive(Debug)]
enum State {
    Open(PostgresTransaction),
    /// Everything is done, or there was nothing to do.
    Ended,
    /// The transaction broke, with all that was to be done in it.
    Lost,
}

/// What is to be done before the commit.
#[derive(Debug, Default)]
struct Settled {
    removed: Vec<(MessageId, Held)>,
    failed: Vec<Failure>,
    /// Something goes back as it was: somebody may wait for it.
    gives_back: bool,
}

impl PostgresClaim {
    pub(crate) fn new(
        shared: Arc<Shared>,
        transaction: Option<PostgresTransaction>,
        held: Vec<(MessageId, Held)>,
        expires: Option<Instant>,
    ) -> Self {
        let state = transaction.map_or(State::Ended, State::Open);
        Self { shared, state, held: held.into_iter().collect(), settled: Settled::default(), expires }
    }

    /// Whether what is settled may be committed although not all is.
    fn settles_by_itself(&self) -> bool {
        self.shared.mode != TransactionMode::TransactionScope
    }

    /// Ends the transaction if nothing is left to settle: then what was settled is permanent, and the rest is free.
    async fn end_if_settled(&mut self, operation: Operation) -> Result<(), StoreError> {
        if self.held.is_empty() && self.settles_by_itself() { self.end(operation).await } else { Ok(()) }
    }

    async fn end(&mut self, operation: Operation) -> Result<(), StoreError> {
        let ended = match std::mem::replace(&mut self.state, State::Ended) {
            State::Open(transaction) => {
                let mut settled = std::mem::take(&mut self.settled);
                settled.gives_back |= !self.held.is_empty();
                self.held.clear();
                // As a task: dropping this future must not leave the transaction half-way.
                let end = tokio::spawn(settled.commit(Arc::clone(&self.shared), transaction));
                end.await.unwrap_or_else(|_| Err(lost()))
            }
            State::Ended => Ok(()),
            State::Lost => Err(lost()),
        };
        ended.map_err(|fault| {
            self.state = State::Lost;
            self.shared.place.error(fault, operation)
        })
    }

    /// Nothing can be settled in a transaction that is gone.
    fn check(&self, operation: Operation) -> Result<(), StoreError> {
        match self.state {
            State::Lost => Err(self.shared.place.error(lost(), operation)),
            _ => Ok(()),
        }
    }
}

fn lost() -> Fault {
    let detail = "the transaction that held the messages is gone; fetch again";
    Fault::new(StoreErrorKind::ClaimLost, detail)
}

#[async_trait]
impl Claim for PostgresClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        self.check(Operation::Remove)?;
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let removed = self.held.remove_entry(id);
            answers.push(removed.is_some());
            self.settled.removed.extend(removed);
        }
        self.end_if_settled(Operation::Remove).await?;
        Ok(answers)
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        self.check(Operation::IncrementFailureCount)?;
        let mut answers = Vec::with_capacity(failures.len());
        for failure in failures {
            let was_held = self.held.remove(&failure.id).is_some();
            answers.push(was_held);
            self.settled.failed.extend(was_held.then(|| failure.clone()));
        }
        self.end_if_settled(Operation::IncrementFailureCount).await?;
        Ok(answers)
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        self.check(Operation::Release)?;
        for id in ids {
            self.settled.gives_back |= self.held.remove(id).is_some();
        }
        self.end_if_settled(Operation::Release).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let State::Open(transaction) = &mut self.state else { return self.check(Operation::Renew) };
        let began = Instant::now();
        let touch = async { Ok(sqlx::query("SELECT 1").execute(transaction.connection()).await?) };
        if let Err(fault) = within(touch).await {
            self.state = State::Lost;
            return Err(self.shared.place.error(fault.claim_lost(), Operation::Renew));
        }
        self.expires = began.checked_add(self.shared.place.claim_limit);
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        match &mut self.state {
            State::Open(transaction) if self.shared.mode == TransactionMode::TransactionScope => {
                Some(Enlistment::new(transaction))
            }
            _ => None,
        }
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        self.end(Operation::Commit).await
    }
}

/// What was settled counts, and the rest goes back; in [`TransactionScope`](TransactionMode::TransactionScope) mode
/// everything goes back.
impl Drop for PostgresClaim {
    fn drop(&mut self) {
        let State::Open(transaction) = std::mem::replace(&mut self.state, State::Ended) else { return };
        // Without a runtime the connection is closed, and the server undoes everything.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut settled = std::mem::take(&mut self.settled);
        let gives_back =
            !self.held.is_empty() || settled.gives_back || !self.settles_by_itself() && settled.is_some();
        if !self.settles_by_itself() {
            settled = Settled::default();
        }
        settled.gives_back = gives_back;
        let (shared, undo) = (Arc::clone(&self.shared), !self.settles_by_itself());
        runtime.spawn(async move {
            let ended = if undo {
                settled.undo(shared, transaction).await
            } else {
                settled.commit(shared, transaction).await
            };
            if let Err(fault) = ended {
                tracing::debug!(?fault, "a dropped claim broke");
            }
        });
    }
}

impl Settled {
    fn is_some(&self) -> bool {
        !self.removed.is_empty() || !self.failed.is_empty()
    }

    /// Does what is to be done and commits it.
    async fn commit(self, shared: Arc<Shared>, transaction: PostgresTransaction) -> Result<()> {
        if self.removed.is_empty()
            && self.failed.is_empty()
            && shared.mode != TransactionMode::TransactionScope
        {
            return self.undo(shared, transaction).await;
        }
        let committed = within(self.carry_out(&shared, transaction)).await;
        if self.gives_back || committed.is_err() {
            shared.given_back();
        }
        committed
    }

    /// Gives everything back.
    async fn undo(self, shared: Arc<Shared>, transaction: PostgresTransaction) -> Result<()> {
        // Where it fails the connection is closed, which does the same.
        let undone = within(transaction.roll_back()).await;
        if self.gives_back {
            shared.given_back();
        }
        undone
    }

    async fn carry_out(&self, shared: &Shared, mut transaction: PostgresTransaction) -> Result<()> {
        if !self.removed.is_empty() {
            self.remove(shared, &mut transaction).await.map_err(broken)?;
        }
        if !self.failed.is_empty() {
            self.count_failures(shared, &mut transaction).await.map_err(broken)?;
        }
        let topics = transaction.commit().await.map_err(broken)?;
        topics.for_each(|topic| shared.place.arrived(topic));
        Ok(())
    }

    async fn remove(&self, shared: &Shared, transaction: &mut PostgresTransaction) -> Result<()> {
        let statement = query(&shared.place.sql.remove);
        let tids: Option<Vec<Tid>> = self.removed.iter().map(|(_, held)| held.tid).collect();
        let statement = match tids {
            Some(tids) => statement.bind(tids),
            None => {
                let ids: Vec<&str> = self.removed.iter().map(|(id, _)| id.as_str()).collect();
                statement.bind(ids).bind(shared.endpoint)
            }
        };
        let removed = statement.execute(transaction.connection()).await?.rows_affected();
        if removed != self.removed.len() as u64 {
            return Err(lost());
        }
        Ok(())
    }

    async fn count_failures(&self, shared: &Shared, transaction: &mut PostgresTransaction) -> Result<()> {
        let ids: Vec<&str> = self.failed.iter().map(|failure| failure.id.as_str()).collect();
        let delays: Vec<_> = self.failed.iter().map(|failure| interval(failure.retry_after)).collect();
        // The tables take no zero bytes.
        let error = |failure: &Failure| -> String {
            failure.error.chars().filter(|c| *c != '\0').take(Failure::MAX_ERROR_CHARS).collect()
        };
        let errors: Vec<String> = self.failed.iter().map(error).collect();
        let counted = query(&shared.place.sql.count_failures)
            .bind(shared.endpoint)
            .bind(ids)
            .bind(delays)
            .bind(errors)
            .execute(transaction.connection())
            .await?
            .rows_affected();
        if counted != self.failed.len() as u64 {
            return Err(lost());
        }
        Ok(())
    }
}

/// A transaction whose connection broke is lost; what the server said otherwise stands as it is.
fn broken(fault: Fault) -> Fault {
    if fault.kind() == StoreErrorKind::Unavailable { fault.claim_lost() } else { fault }
}
