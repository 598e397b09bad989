//! Looking at what is stored.

use std::collections::HashSet;

use jiff::Timestamp;
use postdate_core::{
    Address, Cursor, DueMessage, ListQuery, Listing, MessageId, MessageState, ScheduledMessage,
    ScheduledSummary, Stats, StoreErrorKind,
};
use rusqlite::{Connection, OptionalExtension, Row, types::ValueRef};

use crate::{
    error::{Fault, Result},
    record,
    time::{NEVER, ceil_micros, from_micros},
};

const GET: &str = "
    SELECT seq, attempt_at, due, failures, last_error, destination, id, headers, body
    FROM message WHERE endpoint = ?1 AND id = ?2";

/// A prefix is compared by its letters, not by a pattern: nothing in it has a meaning of its own.
const LIST: &str = "
    SELECT seq, attempt_at, due, failures, last_error, destination, id, length(body)
    FROM message INDEXED BY message_attempt
    WHERE endpoint = ?1 AND (attempt_at, seq) > (?2, ?3)
        AND (?4 IS NULL OR destination = ?4) AND (?5 IS NULL OR substr(id, 1, length(?5)) = ?5)
        AND due >= ?6 AND (?7 IS NULL OR due < ?7) AND max(failures, 0) >= ?8
    ORDER BY attempt_at, seq LIMIT ?9";

const STATS: &str = "
    SELECT count(*), count(*) FILTER (WHERE attempt_at <= ?2), count(*) FILTER (WHERE failures > 0),
        min(due) FILTER (WHERE attempt_at <= ?2),
        min(attempt_at) FILTER (WHERE attempt_at > ?2 AND attempt_at < ?3)
    FROM message WHERE endpoint = ?1";

const IS_THERE: &str = "SELECT 1 FROM message WHERE seq = ?1";

pub(super) fn get(
    connection: &Connection,
    endpoint: i64,
    id: &MessageId,
    held: &HashSet<i64>,
) -> Result<Option<ScheduledMessage>> {
    let mut statement = connection.prepare_cached(GET)?;
    let found = statement
        .query_row((endpoint, id.as_str()), |row| {
            let Ok(message) = record::message(row, 6, shown_address(row.get_ref(5)?))? else {
                return Ok(None);
            };
            let (due, failures) = (from_micros(row.get(2)?), record::small_count(row, 3)?);
            Ok(Some(ScheduledMessage {
                message: DueMessage { message, due, failures },
                state: state(row, held)?,
                next_attempt: from_micros(row.get(1)?),
                last_error: record::shown_text(row.get_ref(4)?),
            }))
        })
        .optional()?;
    Ok(found.flatten())
}

pub(super) fn list(
    connection: &Connection,
    endpoint: i64,
    query: &ListQuery,
    held: &HashSet<i64>,
) -> Result<Listing> {
    let after = query.after.as_ref().map_or(Ok(Place::START), |cursor| Place::read(cursor, endpoint))?;
    let filter = &query.filter;
    // One more than asked for shows whether there is another page.
    let limit = i64::try_from(query.limit.get()).unwrap_or(i64::MAX).saturating_add(1);
    let mut statement = connection.prepare_cached(LIST)?;
    let mut rows = statement.query((
        endpoint,
        after.attempt_at,
        after.seq,
        filter.destination.as_ref().map(Address::as_str),
        filter.id_prefix.as_deref(),
        filter.due_from.map_or(i64::MIN, ceil_micros),
        filter.due_before.map(ceil_micros),
        filter.min_failures,
        limit,
    ))?;
    let (mut messages, mut last, mut next) = (Vec::new(), Place::START, None);
    while let Some(row) = rows.next()? {
        if messages.len() == query.limit.get() {
            next = Some(last.write(endpoint));
            break;
        }
        last = Place { seq: row.get(0)?, attempt_at: row.get(1)? };
        messages.push(summary(row, held)?);
    }
    Ok(Listing { messages, next })
}

/// Counts; the caller knows the time.
pub(super) fn stats(connection: &Connection, endpoint: i64, now: i64, held: &HashSet<i64>) -> Result<Stats> {
    // What was just removed may still be among the held.
    let mut is_there = connection.prepare_cached(IS_THERE)?;
    let mut in_flight = 0;
    for seq in held {
        in_flight += u64::from(is_there.exists([seq])?);
    }
    let stats = connection.prepare_cached(STATS)?.query_row([endpoint, now, NEVER], |row| {
        let time = |column| row.get::<_, Option<i64>>(column).map(|micros| micros.map(from_micros));
        Ok(Stats {
            pending: record::count(row, 0)?,
            overdue: record::count(row, 1)?,
            in_flight,
            failing: record::count(row, 2)?,
            oldest_overdue: time(3)?,
            next_due: time(4)?,
            now: Timestamp::UNIX_EPOCH,
        })
    })?;
    Ok(stats)
}

fn summary(row: &Row<'_>, held: &HashSet<i64>) -> rusqlite::Result<ScheduledSummary> {
    Ok(ScheduledSummary {
        id: shown_id(row.get_ref(6)?),
        destination: shown_address(row.get_ref(5)?),
        due: from_micros(row.get(2)?),
        next_attempt: from_micros(row.get(1)?),
        failures: record::small_count(row, 3)?,
        last_error: record::shown_text(row.get_ref(4)?),
        body_bytes: record::count(row, 7)?,
        state: state(row, held)?,
    })
}

fn state(row: &Row<'_>, held: &HashSet<i64>) -> rusqlite::Result<MessageState> {
    let held = held.contains(&row.get(0)?);
    Ok(if held { MessageState::InFlight } else { MessageState::Pending })
}

/// A quarantined row is listed like any other, with this in the place of what cannot be read.
const UNREADABLE: &str = "(unreadable)";

fn shown_id(value: ValueRef<'_>) -> MessageId {
    record::id(value).unwrap_or_else(|_| MessageId::new(UNREADABLE).expect("the text is a valid id"))
}

fn shown_address(value: ValueRef<'_>) -> Address {
    record::address(value, None)
        .unwrap_or_else(|_| Address::new(UNREADABLE).expect("the text is a valid address"))
}

/// A place in the order of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    attempt_at: i64,
    seq: i64,
}

impl Place {
    const START: Self = Self { attempt_at: i64::MIN, seq: i64::MIN };

    fn write(self, endpoint: i64) -> Cursor {
        Cursor(format!("sqlite-{endpoint}-{}-{}", self.seq, self.attempt_at))
    }

    fn read(cursor: &Cursor, endpoint: i64) -> Result<Self> {
        let read = |text: &str| {
            let (owner, place) = text.strip_prefix("sqlite-")?.split_once('-')?;
            let (seq, attempt_at) = place.split_once('-')?;
            let place = Self { attempt_at: attempt_at.parse().ok()?, seq: seq.parse().ok()? };
            (owner.parse() == Ok(endpoint)).then_some(place)
        };
        read(&cursor.0).ok_or_else(|| {
            let detail = "the cursor is not from this store; begin again without one";
            Fault::new(StoreErrorKind::Invalid, detail)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_and_no_other_text_does() {
        for place in [Place { attempt_at: -5, seq: 7 }, Place { attempt_at: NEVER, seq: 1 }] {
            assert_eq!(Place::read(&place.write(3), 3).unwrap(), place);
            assert!(Place::read(&place.write(3), 4).is_err(), "another endpoint's");
        }
        for text in
            ["", "sqlite", "sqlite-3-7", "sqlite-3-x-1", "postgres-3-7-1", "sqlite-3-7-1-", "sqlite-3--"]
        {
            assert!(Place::read(&Cursor(text.to_owned()), 3).is_err(), "{text}");
        }
    }
}
