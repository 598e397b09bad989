//! Messages as the columns of one statement.

use std::collections::HashSet;

use jiff::Timestamp;
use postdate_core::{DelayedMessage, Due, MessageId, StoreErrorKind};
use sqlx::{
    Connection, PgConnection, Postgres, Row,
    postgres::{PgArguments, types::PgInterval},
    query::Query,
};

use crate::{
    MAX_MESSAGE_BYTES,
    error::{Fault, Result},
    sql::{Statements, query},
    time::{PgInstant, interval},
};

/// A statement can carry twice as much.
const MAX_CALL_BYTES: usize = 512 << 20;

/// So often a message is found to be there when it is to be stored, and to be gone when it is looked at.
const TRIES: usize = 5;

/// The columns.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    endpoints: Vec<i32>,
    asked: Vec<Option<PgInstant>>,
    delays: Vec<Option<PgInterval>>,
    ids: Vec<&'a str>,
    destinations: Vec<&'a str>,
    headers: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
}

/// What was stored, and when.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) now: PgInstant,
    /// In the order of the messages.
    pub(crate) dues: Vec<PgInstant>,
}

/// What inserting came to.
#[derive(Debug)]
pub(crate) struct Inserted {
    /// What relative delays were counted from.
    pub(super) now: PgInstant,
    /// The positions of messages that were there already.
    pub(super) missing: HashSet<usize>,
}

impl<'a> Batch<'a> {
    pub(crate) fn of(messages: impl Iterator<Item = (i32, &'a DelayedMessage)>) -> Self {
        let mut batch = Self::default();
        for (endpoint, DelayedMessage { message, due }) in messages {
            let (asked, delay) = match due {
                Due::At(instant) => (Some(PgInstant::ceil(*instant)), None),
                Due::After(delay) => (None, Some(interval(*delay))),
            };
            batch.endpoints.push(endpoint);
            batch.asked.push(asked);
            batch.delays.push(delay);
            batch.ids.push(message.id.as_str());
            batch.destinations.push(message.destination.as_str());
            batch.headers.push(message.headers.as_bytes());
            batch.bodies.push(&message.body);
        }
        batch
    }

    fn bind(
        &self,
        statement: Query<'static, Postgres, PgArguments>,
    ) -> Query<'static, Postgres, PgArguments> {
        statement
            .bind(&self.endpoints)
            .bind(&self.asked)
            .bind(&self.delays)
            .bind(&self.ids)
            .bind(&self.destinations)
            .bind(&self.headers)
            .bind(&self.bodies)
    }

    /// The due times of messages that are new.
    pub(super) fn dues(&self, now: PgInstant) -> Vec<PgInstant> {
        let delay = |delay: &Option<PgInterval>| delay.as_ref().map_or(0, |delay| delay.microseconds);
        let due =
            |(asked, after): (&Option<PgInstant>, _)| asked.unwrap_or_else(|| now.plus_micros(delay(after)));
        self.asked.iter().zip(&self.delays).map(due).collect()
    }
}

/// Refuses what is too large, or due after the end of time.
pub(crate) fn check(messages: &[DelayedMessage]) -> Result<()> {
    let now = Timestamp::now();
    let all: usize = messages.iter().map(|message| message.message.size()).sum();
    if all > MAX_CALL_BYTES {
        let detail = format!(
            "the messages have {all} bytes together, the limit of a call is {MAX_CALL_BYTES}; store fewer"
        );
        return Err(Fault::new(StoreErrorKind::TooLarge, detail));
    }
    for DelayedMessage { message, due } in messages {
        let (id, size) = (&message.id, message.size());
        if size > MAX_MESSAGE_BYTES {
            let detail = format!(
                "message `{id}` has {size} bytes, the limit is {MAX_MESSAGE_BYTES}; store its content elsewhere"
            );
            return Err(Fault::new(StoreErrorKind::TooLarge, detail));
        }
        check_due(id, *due, now)?;
    }
    Ok(())
}

/// The server's clock decides when a message is due; whether that is in another age can be told by any clock.
pub(crate) fn check_due(id: &MessageId, due: Due, now: Timestamp) -> Result<()> {
    if due.resolve(now).is_some() {
        return Ok(());
    }
    let detail = format!("message `{id}` is due after the end of time, the year 9999; choose less");
    Err(Fault::new(StoreErrorKind::Invalid, detail))
}

/// Inserts messages of which none is there yet, and answers with what relative delays were counted from; `None` if one
/// is there, and then nothing was inserted.
///
/// To look for each row whether it is there before it is written costs a seventh more, and messages that are stored
/// twice are rare.
pub(super) async fn insert_new(
    connection: &mut PgConnection,
    sql: &Statements,
    batch: &Batch<'_>,
) -> Result<Option<PgInstant>> {
    match batch.bind(query(&sql.store_new)).fetch_one(connection).await {
        Ok(row) => Ok(Some(row.try_get_unchecked(0)?)),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Inserts what is not there yet.
pub(crate) async fn insert(
    connection: &mut PgConnection,
    sql: &Statements,
    batch: &Batch<'_>,
) -> Result<Inserted> {
    let count = batch.ids.len();
    let statement = batch.bind(query(&sql.store)).bind(i64::try_from(count).unwrap_or(i64::MAX));
    let row = statement.fetch_one(connection).await?;
    let now = row.try_get_unchecked(0)?;
    if row.try_get(2)? {
        return Ok(Inserted { now, missing: HashSet::new() });
    }
    let new: Option<Vec<String>> = row.try_get(1)?;
    let mut new: HashSet<String> = new.unwrap_or_default().into_iter().collect();
    // Of several with the same id it is the first that is new.
    let is_missing = |n: &usize| !new.remove(&format!("{} {}", batch.endpoints[*n], batch.ids[*n]));
    Ok(Inserted { now, missing: (0..count).filter(is_missing).collect() })
}

/// Stores messages in a transaction of their own. All or none.
///
/// Two who store the same messages in opposite orders wait for each other until the server ends one of them. They cannot
/// be brought into one order: it is that in which they are fetched.
pub(crate) async fn all_or_none(
    connection: &mut PgConnection,
    sql: &Statements,
    batch: &Batch<'_>,
) -> Result<Stored> {
    for _ in 1..TRIES {
        match all_or_none_once(connection, sql, batch).await {
            Err(fault) if fault.is_collision() => {}
            outcome => return outcome,
        }
    }
    all_or_none_once(connection, sql, batch).await
}

async fn all_or_none_once(
    connection: &mut PgConnection,
    sql: &Statements,
    batch: &Batch<'_>,
) -> Result<Stored> {
    let mut transaction = connection.begin().await?;
    match within_transaction(&mut transaction, sql, batch).await {
        Ok(stored) => transaction.commit().await.map(|()| stored).map_err(Fault::from),
        Err(fault) => {
            transaction.rollback().await?;
            Err(fault)
        }
    }
}

/// Stores messages in the transaction that the connection is in, and answers with their due times: those of before
/// for messages that are there already. Where one conflicts, none is stored.
pub(crate) async fn within_transaction(
    connection: &mut PgConnection,
    sql: &Statements,
    batch: &Batch<'_>,
) -> Result<Stored> {
    let mut new = HashSet::new();
    for _ in 0..TRIES {
        let inserted = insert(connection, sql, batch).await?;
        let mut dues = batch.dues(inserted.now);
        if inserted.missing.is_empty() {
            return Ok(Stored { now: inserted.now, dues });
        }
        new.extend((0..dues.len()).filter(|n| !inserted.missing.contains(n)));
        let known = compare(connection, sql, batch).await?;
        if let Some(other) = (0..dues.len()).find(|n| known[*n].is_some_and(|known| !known.is_same)) {
            take_back(connection, sql, batch, &new).await?;
            let id = batch.ids[other];
            let detail = format!(
                "message `{id}` is there already with different content; cancel it or choose another id"
            );
            return Err(Fault::new(StoreErrorKind::Conflict, detail));
        }
        // One that is neither new nor known was delivered or cancelled a moment ago.
        if known.iter().all(Option::is_some) {
            dues = known.into_iter().flatten().map(|known| known.due).collect();
            return Ok(Stored { now: inserted.now, dues });
        }
    }
    let detail = "messages with these ids come and go; try again";
    Err(Fault::new(StoreErrorKind::Unavailable, detail))
}

/// Undoes what was inserted, without a savepoint: that would cost something also where nothing is to be undone.
async fn take_back(
    connection: &mut PgConnection,
    sql: &Statements,
    batch: &Batch<'_>,
    new: &HashSet<usize>,
) -> Result<()> {
    let endpoints: Vec<i32> = new.iter().map(|n| batch.endpoints[*n]).collect();
    let ids: Vec<&str> = new.iter().map(|n| batch.ids[*n]).collect();
    query(&sql.take_back).bind(endpoints).bind(ids).execute(connection).await?;
    Ok(())
}

/// A message that is there.
#[derive(Clone, Copy, Debug)]
struct Known {
    due: PgInstant,
    is_same: bool,
}

async fn compare(
    connection: &mut PgConnection,
    sql: &Statements,
    batch: &Batch<'_>,
) -> Result<Vec<Option<Known>>> {
    let mut known = vec![None; batch.ids.len()];
    for row in batch.bind(query(&sql.compare)).fetch_all(connection).await? {
        let n: i64 = row.try_get(0)?;
        let place = usize::try_from(n - 1).ok().and_then(|n| known.get_mut(n));
        if let Some(place) = place {
            *place = Some(Known { due: row.try_get_unchecked(1)?, is_same: row.try_get(2)? });
        }
    }
    Ok(known)
}
