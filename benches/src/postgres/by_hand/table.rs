//! The table that the bounds share, and the statements on it.

use anyhow::Result;
use jiff::Timestamp;
use postdate_core::DelayedMessage;
use sqlx::{
    Decode, Encode, Executor as _, PgConnection, Postgres, Row as _, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgRow, PgTypeInfo, PgValueRef, types::Oid},
    query, query_scalar,
};

use crate::{postgres::server::Database, workload::due};

const INSERT: &str = "INSERT INTO message (endpoint, attempt_at, due, asked, id, destination, headers, body) \
                      SELECT 1, due, due, due, id, destination, headers, body FROM unnest($1::timestamptz[], $2::text[], \
                      $3::text[], $4::bytea[], $5::bytea[]) AS new (due, id, destination, headers, body)";
const INSERT_ONE: &str = "INSERT INTO message (endpoint, attempt_at, due, asked, id, destination, headers, body) \
                          VALUES (1, $1, $1, $1, $2, $3, $4, $5)";
const LOCK_DUE: &str = "SELECT ctid, id, destination, due, failures, headers, body FROM message \
                        WHERE endpoint = 1 AND attempt_at <= now() ORDER BY attempt_at, seq LIMIT 500 \
                        FOR UPDATE SKIP LOCKED";
const ENQUEUE: &str = "INSERT INTO queue_message (queue, id, headers, body) \
                       SELECT 1, * FROM unnest($1::text[], $2::bytea[], $3::bytea[])";
const DELETE: &str = "DELETE FROM message WHERE ctid = ANY($1)";
const WAIT: &str = "SELECT (extract(epoch FROM min(attempt_at) - clock_timestamp()) * 1000000)::bigint FROM message \
                    WHERE endpoint = 1";

/// A row that is due, and locked.
#[derive(Debug)]
pub(super) struct Row {
    place: Place,
    pub(super) due: Timestamp,
    id: String,
    _destination: String,
    _failures: i32,
    headers: Vec<u8>,
    body: Vec<u8>,
}

pub(crate) async fn create(database: &Database) -> Result<()> {
    database.connect().await?.execute(include_str!("schema.sql")).await?;
    Ok(())
}

/// In a transaction of its own.
pub(super) async fn insert(connection: &mut PgConnection, messages: &[DelayedMessage]) -> sqlx::Result<()> {
    if let [delayed] = messages {
        let message = &delayed.message;
        let insert = query(INSERT_ONE).bind(Instant(due(delayed))).bind(message.id.as_str());
        let insert = insert.bind(message.destination.as_str()).bind(&message.headers.as_bytes()[..]);
        insert.bind(&message.body[..]).execute(connection).await?;
        return Ok(());
    }
    let all = || messages.iter().map(|delayed| &delayed.message);
    let insert = query(INSERT)
        .bind(messages.iter().map(|delayed| Instant(due(delayed))).collect::<Vec<_>>())
        .bind(all().map(|message| message.id.as_str()).collect::<Vec<_>>())
        .bind(all().map(|message| message.destination.as_str()).collect::<Vec<_>>())
        .bind(all().map(|message| &message.headers.as_bytes()[..]).collect::<Vec<_>>())
        .bind(all().map(|message| &message.body[..]).collect::<Vec<_>>());
    insert.execute(connection).await?;
    Ok(())
}

pub(super) async fn lock_due(connection: &mut PgConnection) -> sqlx::Result<Vec<Row>> {
    query(LOCK_DUE).fetch_all(connection).await?.iter().map(Row::read).collect()
}

pub(super) async fn delete(connection: &mut PgConnection, rows: &[Row]) -> sqlx::Result<()> {
    let places: Vec<_> = rows.iter().map(|row| row.place).collect();
    query(DELETE).bind(places).execute(connection).await?;
    Ok(())
}

/// Puts what is due into a queue.
pub(super) async fn enqueue(connection: &mut PgConnection, rows: &[Row]) -> sqlx::Result<()> {
    let enqueue = query(ENQUEUE)
        .bind(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| &row.headers[..]).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| &row.body[..]).collect::<Vec<_>>());
    enqueue.execute(connection).await?;
    Ok(())
}

/// Microseconds until the next is due.
pub(super) async fn wait(connection: &mut PgConnection) -> sqlx::Result<Option<i64>> {
    query_scalar(WAIT).fetch_one(connection).await
}

impl Row {
    fn read(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            place: row.try_get(0)?,
            id: row.try_get(1)?,
            _destination: row.try_get(2)?,
            due: row.try_get::<Instant, _>(3)?.0,
            _failures: row.try_get(4)?,
            headers: row.try_get(5)?,
            body: row.try_get(6)?,
        })
    }
}

/// Where a row is: the fastest key there is while it is locked.
#[derive(Clone, Copy, Debug)]
struct Place([u8; 6]);

/// sqlx knows the times of two other libraries.
#[derive(Clone, Copy, Debug)]
struct Instant(Timestamp);

/// 2000-01-01, where PostgreSQL counts from, in microseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000;

impl Type<Postgres> for Place {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(27))
    }
}

impl PgHasArrayType for Place {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1010))
    }
}

impl Encode<'_, Postgres> for Place {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Place {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_bytes()?.try_into()?))
    }
}

impl Type<Postgres> for Instant {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl PgHasArrayType for Instant {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1185))
    }
}

impl Encode<'_, Postgres> for Instant {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&(self.0.as_microsecond() - EPOCH).to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for Instant {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let micros = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self(Timestamp::from_microsecond(micros + EPOCH)?))
    }
}
