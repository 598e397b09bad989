//! The delayed messages of one endpoint.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, DelayedMessage, DelayedMessageStore, Due, DueBatch, FetchDue, NextDue, Operation, StoreError,
    StoreErrorKind, TransactionMode,
    wake::{Topic, Wake},
};
use rusqlite::{Connection, Statement};

use crate::{
    MAX_MESSAGE_BYTES,
    error::{Fault, Result},
    file::{File, InFlight},
    time::{ceil_micros, from_micros},
    writer::{Tx, Work},
};

const INSERT: &str = "
    INSERT INTO message (endpoint, attempt_at, due, asked, id, destination, headers, body)
    VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (endpoint, id) DO NOTHING";

/// The due time of a message that is there already, and whether it is the same message. Due times are compared as
/// they were asked for, and only where both were absolute.
const COMPARE: &str = "
    SELECT due,
        destination = ?3 AND headers = ?4 AND body = ?5 AND (asked IS NULL OR ?6 IS NULL OR asked = ?6)
    FROM message WHERE endpoint = ?1 AND id = ?2";

#[derive(Debug)]
pub(crate) struct SqliteStore {
    pub(crate) file: Arc<File>,
    pub(crate) endpoint: i64,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) mode: TransactionMode,
    wake: Arc<Wake>,
}

impl SqliteStore {
    pub(crate) fn new(file: Arc<File>, endpoint: i64, mode: TransactionMode) -> Self {
        let wake = file.shared().wakes.join(Topic::Endpoint(endpoint));
        let in_flight = file.shared().dispatching.of(endpoint);
        Self { file, endpoint, in_flight, mode, wake }
    }
}

#[async_trait]
impl DelayedMessageStore for SqliteStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        check_sizes(messages).map_err(|fault| self.file.error(fault, Operation::Store))?;
        // One message conflicts before anything is written; a batch may find out half-way.
        let work = if messages.len() > 1 { Work::Undoable } else { Work::Plain };
        let (messages, endpoint) = (messages.to_vec(), self.endpoint);
        self.file.write(Operation::Store, work, move |tx| insert_all(tx, endpoint, &messages)).await
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        self.claim_due(request).await
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        // Whatever is committed while the answer is found is a reason to ask again.
        self.wake.set_interest(i64::MAX, except);
        let due = self.earliest(except).await?;
        self.wake.set_interest(due.map_or(i64::MAX, ceil_micros), except);
        Ok(NextDue { due, now: self.file.now() })
    }

    async fn changed(&self) {
        self.file.watch();
        self.wake.changed().await;
    }
}

fn check_sizes(messages: &[DelayedMessage]) -> Result<()> {
    let Some(large) = messages.iter().find(|message| message.message.size() > MAX_MESSAGE_BYTES) else {
        return Ok(());
    };
    let (id, size) = (&large.message.id, large.message.size());
    let detail = format!(
        "message `{id}` has {size} bytes, the limit is {MAX_MESSAGE_BYTES}; store its content elsewhere"
    );
    Err(Fault::new(StoreErrorKind::TooLarge, detail))
}

fn insert_all(tx: &mut Tx<'_>, endpoint: i64, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>> {
    let now = tx.shared.clock.now();
    let mut dues = Vec::with_capacity(messages.len());
    let mut statement = tx.connection.prepare_cached(INSERT)?;
    for message in messages {
        let due = message.due.resolve(now).ok_or_else(|| {
            let id = &message.message.id;
            let detail = format!("message `{id}` is due after the end of time, the year 9999; choose less");
            Fault::new(StoreErrorKind::Invalid, detail)
        })?;
        let (due, new) = insert(tx.connection, &mut statement, endpoint, message, ceil_micros(due))?;
        if new {
            tx.ring_for(Topic::Endpoint(endpoint), due, &message.message.destination);
        }
        dues.push(from_micros(due));
    }
    Ok(dues)
}

/// Inserts a message unless it is there already. Answers with its due time and whether it is new.
fn insert(
    connection: &Connection,
    statement: &mut Statement<'_>,
    endpoint: i64,
    delayed: &DelayedMessage,
    due: i64,
) -> Result<(i64, bool)> {
    let message = &delayed.message;
    let asked = matches!(delayed.due, Due::At(_)).then_some(due);
    let (id, destination) = (message.id.as_str(), message.destination.as_str());
    let (headers, body) = (&message.headers.as_bytes()[..], &message.body[..]);
    if statement.execute((endpoint, due, asked, id, destination, headers, body))? == 1 {
        return Ok((due, true));
    }
    let (due, same): (i64, bool) = connection
        .prepare_cached(COMPARE)?
        .query_row((endpoint, id, destination, headers, body, asked), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if same {
        return Ok((due, false));
    }
    let detail =
        format!("message `{id}` is there already with different content; cancel it or choose another id");
    Err(Fault::new(StoreErrorKind::Conflict, detail))
}
