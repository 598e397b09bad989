//! Reading messages out of rows.

use bytes::Bytes;
use postdate_core::{Address, EncodedHeaders, MessageId, OutgoingMessage};
use sqlx::{Row, postgres::PgRow};

/// A row was read, but there is no message in it: something else than postdate has written it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(String);

impl Unreadable {
    /// What to tell the operator.
    pub(crate) fn reason(&self) -> String {
        format!("the row cannot be read: {}", self.0)
    }
}

/// What is in a row, where the server itself has no complaint.
pub(crate) type Content<T> = Result<T, Unreadable>;

/// The message whose id, headers and body are in three columns from `first`.
pub(crate) fn message(
    row: &PgRow,
    first: usize,
    destination: Address,
) -> sqlx::Result<Content<OutgoingMessage>> {
    let id = match id(row, first)? {
        Ok(id) => id,
        Err(unreadable) => return Ok(Err(unreadable)),
    };
    let headers = EncodedHeaders::from_bytes(bytes(row, first + 1)?);
    Ok(Ok(OutgoingMessage { id, destination, headers, body: bytes(row, first + 2)? }))
}

pub(crate) fn id(row: &PgRow, column: usize) -> sqlx::Result<Content<MessageId>> {
    let id: &str = row.try_get(column)?;
    Ok(MessageId::new(id).map_err(|error| Unreadable(error.to_string())))
}

/// The address in a column; shares the memory of `previous` if it is the same.
pub(crate) fn address(
    row: &PgRow,
    column: usize,
    previous: Option<&Address>,
) -> sqlx::Result<Content<Address>> {
    let text: &str = row.try_get(column)?;
    Ok(match previous {
        Some(previous) if previous.as_str() == text => Ok(previous.clone()),
        _ => Address::new(text).map_err(|error| Unreadable(error.to_string())),
    })
}

/// A count that cannot be negative, unless somebody else has written it.
pub(crate) fn count(row: &PgRow, column: usize) -> sqlx::Result<u64> {
    let count: i64 = row.try_get(column)?;
    Ok(count.max(0).unsigned_abs())
}

pub(crate) fn small_count(row: &PgRow, column: usize) -> sqlx::Result<u32> {
    let count: i32 = row.try_get(column)?;
    Ok(count.max(0).unsigned_abs())
}

fn bytes(row: &PgRow, column: usize) -> sqlx::Result<Bytes> {
    let bytes: &[u8] = row.try_get(column)?;
    Ok(Bytes::copy_from_slice(bytes))
}
