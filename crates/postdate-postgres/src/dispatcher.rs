//! Sending to the queues of the schema.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use postdate_core::{
    DispatchError, DispatchErrorKind, Dispatcher, Enlistment, Operation, OutgoingMessage, StoreError,
    StoreErrorKind,
};
use sqlx::{PgConnection, Row};

use crate::{
    error::{Fault, Result},
    place::{Place, within},
    schema,
    sender::{Outcome, send, send_each},
    sql::{Statements, query},
    transaction::PostgresTransaction,
};

/// Sends to the queues of one place.
#[derive(Debug)]
pub(crate) struct QueueDispatcher {
    place: Arc<Place>,
    /// The handle whose transactions were proved to be of the same database.
    proved: Mutex<Weak<Place>>,
    /// Whether the tables were seen to be of no newer version.
    is_known: AtomicBool,
}

impl QueueDispatcher {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        Self { place, proved: Mutex::default(), is_known: AtomicBool::new(false) }
    }

    async fn send_now(&self, messages: &[OutgoingMessage]) -> Result<Vec<Outcome>> {
        if !self.is_known.load(Ordering::Relaxed) {
            let mut connection = self.place.connections.lend().await?;
            within(schema::version(&self.place, &mut connection)).await?;
            connection.give_back();
            self.is_known.store(true, Ordering::Relaxed);
        }
        send(&self.place, messages).await
    }

    async fn send_within(
        &self,
        messages: &[OutgoingMessage],
        transaction: &mut PostgresTransaction,
    ) -> Result<Vec<Outcome>> {
        if !self.is_joined(transaction).await? {
            return Err(foreign_transaction());
        }
        let messages: Vec<_> = messages.iter().collect();
        let connection = transaction.begin_work()?;
        let sent = within(send_each(connection, &self.place.sql, &messages)).await?;
        transaction.end_work();
        sent.queues.iter().for_each(|queue| transaction.sent_to(*queue));
        Ok(sent.outcomes)
    }

    /// Whether the transaction is of this place: that is proved once for every handle.
    async fn is_joined(&self, transaction: &mut PostgresTransaction) -> Result<bool> {
        let owner = Arc::downgrade(transaction.place());
        if self.proved.lock().unwrap_or_else(PoisonError::into_inner).ptr_eq(&owner) {
            return Ok(true);
        }
        let is_joined = within(self.prove(transaction)).await?;
        if is_joined {
            *self.proved.lock().unwrap_or_else(PoisonError::into_inner) = owner;
        }
        Ok(is_joined)
    }

    /// Whether a lock that the transaction takes is held for a connection of ours. A copy of the server may have the
    /// same names, numbers and content; only the server itself, in the same database, has the lock.
    async fn prove(&self, transaction: &mut PostgresTransaction) -> Result<bool> {
        if transaction.place().names != self.place.names {
            return Ok(false);
        }
        if !self.place.engine.has_advisory_locks() {
            let detail = "this server has no locks to prove that store and queues are in one database; choose another mode";
            return Err(Fault::new(StoreErrorKind::Unsupported, detail));
        }
        // Nobody else has a lock of this number.
        let key = RandomState::new().hash_one(std::process::id()).cast_signed();
        let is_held = lock(transaction.begin_work()?, &self.place.sql, key).await?;
        transaction.end_work();
        let mut own = self.place.connections.lend().await?;
        let is_free_here = lock(&mut own, &self.place.sql, key).await?;
        own.give_back();
        Ok(is_held && !is_free_here)
    }
}

#[async_trait]
impl Dispatcher for QueueDispatcher {
    async fn joins(&self, mut transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        let Some(transaction) = transaction.transaction::<PostgresTransaction>() else { return Ok(false) };
        self.is_joined(transaction).await.map_err(|fault| self.place.error(fault, Operation::Send))
    }

    async fn dispatch(&self, messages: &[OutgoingMessage], within: Option<Enlistment<'_>>) -> Vec<Outcome> {
        let sent = match within {
            None => self.send_now(messages).await,
            Some(mut enlistment) => match enlistment.transaction::<PostgresTransaction>() {
                Some(transaction) => self.send_within(messages, transaction).await,
                None => Err(foreign_transaction()),
            },
        };
        sent.unwrap_or_else(|fault| {
            let error = self.place.error(fault, Operation::Send);
            messages.iter().map(|_| Err(not_sent(&error))).collect()
        })
    }
}

async fn lock(connection: &mut PgConnection, sql: &Statements, key: i64) -> Result<bool> {
    Ok(query(&sql.lock_in_transaction).bind(key).fetch_one(connection).await?.try_get(0)?)
}

fn foreign_transaction() -> Fault {
    let detail = "the transaction is not of this database and schema; ask `joins` before sending in it";
    Fault::new(StoreErrorKind::Unsupported, detail)
}

/// What the whole batch's failure means for one message: never that the message is to blame.
fn not_sent(error: &StoreError) -> DispatchError {
    let kind = match error.kind() {
        StoreErrorKind::NotSetUp => DispatchErrorKind::NoDestination,
        _ => DispatchErrorKind::Unavailable,
    };
    DispatchError::new(kind, error.to_string())
}
