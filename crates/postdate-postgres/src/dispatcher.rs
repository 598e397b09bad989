//! Sending to the queues of the schema.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use postdate_core::{
    DispatchError, DispatchErrorKind, Dispatcher, Enlistment, Operation, OutgoingMessage, StoreError,
    StoreErrorKind, wake::Topic,
};
use sqlx::{Connection as _, PgConnection, Row};

use crate::{
    MAX_MESSAGE_BYTES,
    error::{Fault, Result, missing_queue},
    place::{Place, within},
    schema,
    sql::{Statements, query},
    transaction::PostgresTransaction,
};

/// More than a delayed message may have: its copy in the error queue carries the story of its failure, too.
pub(crate) const MAX_QUEUED_BYTES: usize = MAX_MESSAGE_BYTES + (256 << 10);

/// One statement carries so much, in bytes: the server takes a gigabyte.
const STATEMENT_BYTES: usize = 128 << 20;

/// Sends to the queues of one place.
#[derive(Debug)]
pub(crate) struct QueueDispatcher {
    place: Arc<Place>,
    /// The handle whose transactions were proved to be of the same database.
    proved: Mutex<Weak<Place>>,
    /// Whether the tables were seen to be of no newer version.
    is_known: Arc<AtomicBool>,
}

type Outcome = Result<(), DispatchError>;

impl QueueDispatcher {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        Self { place, proved: Mutex::default(), is_known: Arc::default() }
    }

    /// As a task: a caller who goes away must not keep others from being told of what was sent.
    async fn send_now(&self, messages: &[OutgoingMessage]) -> Result<Vec<Outcome>> {
        let (place, messages) = (Arc::clone(&self.place), messages.to_vec());
        let is_known = Arc::clone(&self.is_known);
        let send = tokio::spawn(within(async move {
            let mut connection = place.connections.lend().await?;
            if !is_known.load(Ordering::Relaxed) {
                schema::version(&place, &mut connection).await?;
                is_known.store(true, Ordering::Relaxed);
            }
            let sent = send_all(&mut connection, &place.sql, &messages).await?;
            connection.give_back();
            sent.queues.iter().for_each(|queue| place.arrived(Topic::Queue((*queue).into())));
            Ok(sent.outcomes)
        }));
        send.await.unwrap_or_else(|_| Err(Fault::interrupted()))
    }

    async fn send_within(
        &self,
        messages: &[OutgoingMessage],
        transaction: &mut PostgresTransaction,
    ) -> Result<Vec<Outcome>> {
        if !self.is_joined(transaction).await? {
            return Err(foreign_transaction());
        }
        let connection = transaction.begin_work()?;
        let sent = within(send_each(connection, &self.place.sql, messages)).await?;
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

/// What became of messages, and the numbers of the queues that some of them are in now.
#[derive(Debug, Default)]
struct Sent {
    outcomes: Vec<Outcome>,
    queues: Vec<i32>,
}

/// Sends messages in one transaction.
async fn send_all(
    connection: &mut PgConnection,
    sql: &Statements,
    messages: &[OutgoingMessage],
) -> Result<Sent> {
    if messages.iter().map(OutgoingMessage::size).sum::<usize>() <= STATEMENT_BYTES {
        // One statement: a transaction by itself.
        return send_each(connection, sql, messages).await;
    }
    let mut transaction = connection.begin().await?;
    let sent = send_each(&mut transaction, sql, messages).await?;
    transaction.commit().await?;
    Ok(sent)
}

/// Sends messages by as few statements as carry them.
async fn send_each(
    connection: &mut PgConnection,
    sql: &Statements,
    messages: &[OutgoingMessage],
) -> Result<Sent> {
    let mut sent = Sent::default();
    let mut rest = messages;
    while !rest.is_empty() {
        let batch = Batch::of(rest);
        rest = &rest[batch.accepted.len()..];
        batch.send(connection, sql, &mut sent).await?;
    }
    Ok(sent)
}

/// Messages as the columns of one statement.
#[derive(Debug, Default)]
struct Batch<'a> {
    /// The queues that messages are for, each once, and at which place each of them stands.
    names: Vec<&'a str>,
    places: HashMap<&'a str, usize>,
    /// The place of each message's queue, counted from 1 as the server does.
    queues: Vec<i32>,
    ids: Vec<&'a str>,
    headers: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    /// Each message, or why it is not in the columns.
    accepted: Vec<Result<&'a OutgoingMessage, DispatchError>>,
}

impl<'a> Batch<'a> {
    /// As many of the messages as one statement carries.
    fn of(messages: &'a [OutgoingMessage]) -> Self {
        let (mut batch, mut bytes) = (Self::default(), 0);
        for message in messages {
            let size = message.size();
            if size > MAX_QUEUED_BYTES {
                batch.accepted.push(Err(too_large(size)));
                continue;
            }
            bytes += size;
            if bytes > STATEMENT_BYTES && !batch.ids.is_empty() {
                break;
            }
            batch.add(message);
        }
        batch
    }

    fn add(&mut self, message: &'a OutgoingMessage) {
        let name = message.destination.as_str();
        let place = *self.places.entry(name).or_insert(self.names.len());
        if place == self.names.len() {
            self.names.push(name);
        }
        self.queues.push(i32::try_from(place + 1).expect("a statement carries fewer bytes than that"));
        self.ids.push(message.id.as_str());
        self.headers.push(message.headers.as_bytes());
        self.bodies.push(&message.body);
        self.accepted.push(Ok(message));
    }

    async fn send(self, connection: &mut PgConnection, sql: &Statements, sent: &mut Sent) -> Result<()> {
        let numbers: Vec<Option<i32>> = if self.ids.is_empty() {
            Vec::new()
        } else {
            let send = query(&sql.send)
                .bind(&self.names)
                .bind(&self.queues)
                .bind(&self.ids)
                .bind(&self.headers)
                .bind(&self.bodies);
            send.fetch_one(connection).await?.try_get(0)?
        };
        sent.queues.extend(numbers.iter().flatten());
        sent.outcomes.extend(self.accepted.into_iter().map(|accepted| {
            let destination = &accepted?.destination;
            let place = self.places.get(destination.as_str());
            let number = place.and_then(|place| *numbers.get(*place)?);
            let missing = || DispatchError::new(DispatchErrorKind::NoDestination, missing_queue(destination));
            number.map(drop).ok_or_else(missing)
        }));
        Ok(())
    }
}

async fn lock(connection: &mut PgConnection, sql: &Statements, key: i64) -> Result<bool> {
    Ok(query(&sql.lock_in_transaction).bind(key).fetch_one(connection).await?.try_get(0)?)
}

fn too_large(size: usize) -> DispatchError {
    let detail = format!("the message has {size} bytes, the limit of a queue is {MAX_QUEUED_BYTES}");
    DispatchError::new(DispatchErrorKind::Rejected, detail)
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
