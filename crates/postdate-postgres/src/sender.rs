//! Putting messages into queues.

use std::{collections::HashMap, sync::Arc};

use postdate_core::{DispatchError, DispatchErrorKind, OutgoingMessage, wake::Topic};
use sqlx::{Connection as _, PgConnection, Row};
use tokio::sync::oneshot;

use crate::{
    MAX_MESSAGE_BYTES,
    connections::Lent,
    error::{Result, missing_queue},
    group::{self, Waiting},
    place::{Place, within},
    sql::{Statements, query},
};

/// More than a delayed message may have: its copy in the error queue carries the story of its failure, too.
pub(crate) const MAX_QUEUED_BYTES: usize = MAX_MESSAGE_BYTES + (256 << 10);

/// One statement carries so much, in bytes: the server takes a gigabyte.
const STATEMENT_BYTES: usize = 128 << 20;

/// Whether a message was sent.
pub(crate) type Outcome = Result<(), DispatchError>;

/// A call of somebody who sends.
#[derive(Debug)]
pub(crate) struct Job {
    messages: Vec<OutgoingMessage>,
    bytes: usize,
    answer: oneshot::Sender<Result<Vec<Outcome>>>,
}

/// Sends messages: those for queues that are there, all or none.
pub(crate) async fn send(place: &Arc<Place>, messages: &[OutgoingMessage]) -> Result<Vec<Outcome>> {
    let bytes = messages.iter().map(OutgoingMessage::size).sum();
    group::answer(place, |answer| Job { messages: messages.to_vec(), bytes, answer }).await
}

impl group::Job for Job {
    fn messages(&self) -> usize {
        self.messages.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn waiting(place: &Place) -> &Waiting<Self> {
        &place.sends
    }

    async fn work(place: &Arc<Place>, connection: Option<Lent>, group: Vec<Self>) -> Option<Lent> {
        let send = async {
            let mut connection = match connection {
                Some(connection) => connection,
                None => place.connections.lend().await?,
            };
            let messages: Vec<_> = group.iter().flat_map(|job| &job.messages).collect();
            Ok((send_all(&mut connection, &place.sql, &messages).await?, connection))
        };
        // Whoever asked may have gone.
        match within(send).await {
            Ok((sent, connection)) => {
                sent.queues.iter().for_each(|queue| place.arrived(Topic::Queue((*queue).into())));
                let mut outcomes = sent.outcomes.into_iter();
                for job in group {
                    drop(job.answer.send(Ok(outcomes.by_ref().take(job.messages.len()).collect())));
                }
                Some(connection)
            }
            Err(fault) => {
                group.into_iter().for_each(|job| drop(job.answer.send(Err(fault.clone()))));
                None
            }
        }
    }
}

/// What became of messages, and the numbers of the queues that some of them are in now.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) queues: Vec<i32>,
}

/// Sends messages in one transaction.
async fn send_all(
    connection: &mut PgConnection,
    sql: &Statements,
    messages: &[&OutgoingMessage],
) -> Result<Sent> {
    if messages.iter().map(|message| message.size()).sum::<usize>() <= STATEMENT_BYTES {
        // One statement: a transaction by itself.
        return send_each(connection, sql, messages).await;
    }
    let mut transaction = connection.begin().await?;
    let sent = send_each(&mut transaction, sql, messages).await?;
    transaction.commit().await?;
    Ok(sent)
}

/// Sends messages by as few statements as carry them.
pub(crate) async fn send_each(
    connection: &mut PgConnection,
    sql: &Statements,
    messages: &[&OutgoingMessage],
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
    fn of(messages: &[&'a OutgoingMessage]) -> Self {
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

fn too_large(size: usize) -> DispatchError {
    let detail = format!("the message has {size} bytes, the limit of a queue is {MAX_QUEUED_BYTES}");
    DispatchError::new(DispatchErrorKind::Rejected, detail)
}
