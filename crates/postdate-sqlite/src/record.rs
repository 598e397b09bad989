//! Reading messages out of rows.

use bytes::Bytes;
use postdate_core::{Address, EncodedHeaders, MessageId, OutgoingMessage};
use rusqlite::{Row, types::ValueRef};

use crate::error::Result;

/// A row was read, but there is no message in it: something else than postdate has written it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(String);

impl Unreadable {
    /// What to tell the operator.
    pub(crate) fn reason(&self) -> String {
        format!("the row cannot be read: {}", self.0)
    }
}

/// What is in a row, where SQLite itself has no complaint.
pub(crate) type Content<T> = Result<T, Unreadable>;

/// The message whose id, headers and body are in three columns from `first`.
pub(crate) fn message(
    row: &Row<'_>,
    first: usize,
    destination: Address,
) -> rusqlite::Result<Content<OutgoingMessage>> {
    let id = match id(row.get_ref(first)?) {
        Ok(id) => id,
        Err(unreadable) => return Ok(Err(unreadable)),
    };
    let headers = EncodedHeaders::from_bytes(blob(row.get_ref(first + 1)?));
    let body = blob(row.get_ref(first + 2)?);
    Ok(Ok(OutgoingMessage { id, destination, headers, body }))
}

pub(crate) fn id(value: ValueRef<'_>) -> Content<MessageId> {
    MessageId::new(text(value)?).map_err(|error| Unreadable(error.to_string()))
}

/// The address in a column; shares the memory of `previous` if it is the same.
pub(crate) fn address(value: ValueRef<'_>, previous: Option<&Address>) -> Content<Address> {
    let text = text(value)?;
    match previous {
        Some(previous) if previous.as_str() == text => Ok(previous.clone()),
        _ => Address::new(text).map_err(|error| Unreadable(error.to_string())),
    }
}

/// A count that cannot be negative, unless somebody else has written it.
pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let count: i64 = row.get(column)?;
    Ok(count.max(0).unsigned_abs())
}

pub(crate) fn small_count(row: &Row<'_>, column: usize) -> rusqlite::Result<u32> {
    Ok(u32::try_from(count(row, column)?).unwrap_or(u32::MAX))
}

/// A text for people, as far as it is one: a listing does not fail for it.
pub(crate) fn shown_text(value: ValueRef<'_>) -> Option<String> {
    value.as_bytes().ok().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn text(value: ValueRef<'_>) -> Content<&str> {
    value.as_str().map_err(|error| Unreadable(error.to_string()))
}

/// The tables are strict: what is in a blob column is a blob.
fn blob(value: ValueRef<'_>) -> Bytes {
    value.as_blob().map(Bytes::copy_from_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_name_is_unreadable_and_nothing_worse() {
        for bad in [&b""[..], b"a\0b", b"\xff\xfe", &[b'x'; 251]] {
            assert!(id(ValueRef::Text(bad)).is_err(), "{bad:?}");
            assert!(address(ValueRef::Text(bad), None).is_err(), "{bad:?}");
        }
        assert!(id(ValueRef::Integer(1)).is_err());
        assert!(id(ValueRef::Text(b"a")).is_ok());
    }
}
