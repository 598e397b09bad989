//! Sending to the queues of the file.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use postdate_core::{
    Address, DispatchError, DispatchErrorKind, Dispatcher, Enlistment, Operation, OutgoingMessage,
    StoreError, StoreErrorKind, wake::Topic,
};
use rusqlite::{Connection, OptionalExtension};

use crate::{
    MAX_MESSAGE_BYTES,
    error::{Fault, Result, missing_queue},
    file::File,
    time::floor_micros,
    transaction::SqliteTransaction,
    writer::{Tx, Work},
};

/// More than a delayed message may have: its copy in the error queue carries the story of its failure, too.
pub(crate) const MAX_QUEUED_BYTES: usize = MAX_MESSAGE_BYTES + (256 << 10);

const INSERT: &str =
    "INSERT INTO queue_message (queue, enqueued, id, headers, body) VALUES (?1, ?2, ?3, ?4, ?5)";

const FIND_QUEUE: &str = "SELECT id FROM queue WHERE name = ?1";

/// Sends to the queues of one file.
#[derive(Debug)]
pub(crate) struct QueueDispatcher {
    file: Arc<File>,
}

impl QueueDispatcher {
    pub(crate) fn new(file: Arc<File>) -> Self {
        Self { file }
    }

    /// Where each message goes. Asked anew for every batch: other processes create queues too.
    fn numbers(connection: &Connection, messages: &[OutgoingMessage]) -> Result<HashMap<Address, i64>> {
        let mut numbers = HashMap::new();
        for message in messages {
            if !numbers.contains_key(&message.destination)
                && let Some(number) = find_queue(connection, &message.destination)?
            {
                numbers.insert(message.destination.clone(), number);
            }
        }
        Ok(numbers)
    }

    async fn send_now(&self, messages: &[OutgoingMessage]) -> Result<Vec<Outcome>, StoreError> {
        let messages = messages.to_vec();
        let send = move |tx: &mut Tx<'_>| {
            let now = floor_micros(tx.shared.clock.now());
            let numbers = Self::numbers(tx.connection, &messages)?;
            let accepted: Vec<_> = messages.iter().map(|message| accept(&numbers, message)).collect();
            let sends = accepted
                .iter()
                .zip(&messages)
                .filter_map(|(queue, message)| Some((*queue.as_ref().ok()?, message)));
            insert(tx, sends, now)?;
            Ok(accepted.into_iter().map(|queue| queue.map(drop)).collect())
        };
        self.file.write(Operation::Send, Work::Plain, send).await
    }

    async fn stage(
        &self,
        messages: &[OutgoingMessage],
        transaction: &mut SqliteTransaction,
    ) -> Result<Vec<Outcome>, StoreError> {
        let batch = messages.to_vec();
        let find = move |connection: &Connection| Self::numbers(connection, &batch);
        let numbers = self.file.read(Operation::Send, find).await?;
        let stage = |message: &OutgoingMessage| {
            accept(&numbers, message).map(|queue| transaction.stage(queue, message.clone()))
        };
        Ok(messages.iter().map(stage).collect())
    }
}

type Outcome = Result<(), DispatchError>;

#[async_trait]
impl Dispatcher for QueueDispatcher {
    async fn joins(&self, mut transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        let transaction = transaction.transaction::<SqliteTransaction>();
        Ok(transaction.is_some_and(|transaction| transaction.is_of(self.file.identity())))
    }

    async fn dispatch(&self, messages: &[OutgoingMessage], within: Option<Enlistment<'_>>) -> Vec<Outcome> {
        let sent = match within {
            None => self.send_now(messages).await,
            Some(mut enlistment) => match enlistment.transaction::<SqliteTransaction>() {
                Some(transaction) if transaction.is_of(self.file.identity()) => {
                    self.stage(messages, transaction).await
                }
                _ => Err(self.file.error(foreign_transaction(), Operation::Send)),
            },
        };
        sent.unwrap_or_else(|error| messages.iter().map(|_| Err(not_sent(&error))).collect())
    }
}

/// The number of a queue, if there is one of that name.
pub(crate) fn find_queue(connection: &Connection, queue: &Address) -> Result<Option<i64>> {
    let mut statement = connection.prepare_cached(FIND_QUEUE)?;
    Ok(statement.query_row([queue.as_str()], |row| row.get(0)).optional()?)
}

/// Puts messages at the ends of their queues.
pub(crate) fn insert<'a>(
    tx: &mut Tx<'_>,
    messages: impl Iterator<Item = (i64, &'a OutgoingMessage)>,
    now: i64,
) -> Result<()> {
    let mut statement = tx.connection.prepare_cached(INSERT)?;
    let mut rung = None;
    for (queue, message) in messages {
        let (headers, body) = (&message.headers.as_bytes()[..], &message.body[..]);
        statement.execute((queue, now, message.id.as_str(), headers, body))?;
        // Neighbours mostly go to the same queue.
        if rung.replace(queue) != Some(queue) {
            tx.ring(Topic::Queue(queue), i64::MIN);
        }
    }
    Ok(())
}

/// The queue that takes a message.
fn accept(numbers: &HashMap<Address, i64>, message: &OutgoingMessage) -> Result<i64, DispatchError> {
    let size = message.size();
    if size > MAX_QUEUED_BYTES {
        let detail = format!("the message has {size} bytes, the limit of a queue is {MAX_QUEUED_BYTES}");
        return Err(DispatchError::new(DispatchErrorKind::Rejected, detail));
    }
    numbers.get(&message.destination).copied().ok_or_else(|| {
        DispatchError::new(DispatchErrorKind::NoDestination, missing_queue(&message.destination))
    })
}

fn foreign_transaction() -> Fault {
    let detail = "the transaction is not of this file; ask `joins` before sending in it";
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
