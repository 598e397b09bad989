//! Looking at what is stored.

use postdate_core::{
    Address, Cursor, DueMessage, ListQuery, Listing, MessageId, MessageState, ScheduledMessage,
    ScheduledSummary, Stats, StoreErrorKind,
};
use sqlx::{Row, postgres::PgRow};

use crate::{
    error::{Fault, Result},
    position::{FRONT, Place},
    record,
    sql::query,
    store::Shared,
    time::PgInstant,
};

/// What dispatchers hold is counted among so many that are due first.
const COUNTED: i64 = 10_000;

pub(super) async fn get(shared: &Shared, id: &MessageId) -> Result<Option<ScheduledMessage>> {
    let mut connection = shared.place.connections.lend().await?;
    let row = query(&shared.place.sql.get).bind(shared.endpoint).bind(id.as_str());
    let row = row.fetch_optional(&mut *connection).await?;
    connection.give_back();
    let Some(row) = row else { return Ok(None) };
    let Ok(message) = record::message(&row, 5, shown_address(&row, 4)?)? else { return Ok(None) };
    let (next_attempt, due): (PgInstant, PgInstant) = (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
    let message = DueMessage { message, due: due.timestamp(), failures: record::small_count(&row, 2)? };
    Ok(Some(ScheduledMessage {
        message,
        state: state(&row, 8)?,
        next_attempt: next_attempt.timestamp(),
        last_error: row.try_get(3)?,
    }))
}

pub(super) async fn list(shared: &Shared, list: &ListQuery) -> Result<Listing> {
    let after = list.after.as_ref().map_or(Ok(FRONT), |cursor| read(cursor, shared.endpoint))?;
    let filter = &list.filter;
    // One more than asked for shows whether there is another page.
    let limit = i64::try_from(list.limit.get()).unwrap_or(i64::MAX).saturating_add(1);
    let mut connection = shared.place.connections.lend().await?;
    let rows = query(&shared.place.sql.list)
        .bind(shared.endpoint)
        .bind(after.0)
        .bind(after.1)
        .bind(filter.destination.as_ref().map(Address::as_str))
        .bind(filter.id_prefix.as_deref().map(without_zero))
        .bind(filter.due_from.map_or(PgInstant::BEFORE_ALL, PgInstant::ceil))
        .bind(filter.due_before.map(PgInstant::ceil))
        .bind(i64::from(filter.min_failures))
        .bind(limit)
        .fetch_all(&mut *connection)
        .await?;
    connection.give_back();
    let shown = &rows[..rows.len().min(list.limit.get())];
    let messages = shown.iter().map(summary).collect::<sqlx::Result<_>>()?;
    let last = shown.last().filter(|_| rows.len() > shown.len()).map(place).transpose()?;
    Ok(Listing { messages, next: last.map(|last| write(last, shared.endpoint)) })
}

pub(super) async fn stats(shared: &Shared) -> Result<Stats> {
    let mut connection = shared.place.connections.lend().await?;
    let row = query(&shared.place.sql.stats).bind(shared.endpoint).bind(COUNTED);
    let row = row.fetch_one(&mut *connection).await?;
    connection.give_back();
    let time =
        |column| row.try_get_unchecked::<Option<PgInstant>, _>(column).map(|at| at.map(PgInstant::timestamp));
    let now: PgInstant = row.try_get_unchecked(6)?;
    Ok(Stats {
        pending: record::count(&row, 0)?,
        overdue: record::count(&row, 1)?,
        in_flight: record::count(&row, 2)?,
        failing: record::count(&row, 3)?,
        oldest_overdue: time(4)?,
        next_due: time(5)?,
        now: now.timestamp(),
    })
}

fn summary(row: &PgRow) -> sqlx::Result<ScheduledSummary> {
    let (next_attempt, due): (PgInstant, PgInstant) = (row.try_get_unchecked(1)?, row.try_get_unchecked(2)?);
    Ok(ScheduledSummary {
        id: record::id(row, 6)?
            .unwrap_or_else(|_| MessageId::new(UNREADABLE).expect("the text is a valid id")),
        destination: shown_address(row, 5)?,
        due: due.timestamp(),
        next_attempt: next_attempt.timestamp(),
        failures: record::small_count(row, 3)?,
        last_error: row.try_get(4)?,
        body_bytes: row.try_get::<i32, _>(7)?.max(0).unsigned_abs().into(),
        state: state(row, 8)?,
    })
}

fn state(row: &PgRow, column: usize) -> sqlx::Result<MessageState> {
    let is_held: bool = row.try_get(column)?;
    Ok(if is_held { MessageState::InFlight } else { MessageState::Pending })
}

/// A quarantined row is listed like any other, with this in the place of what cannot be read.
const UNREADABLE: &str = "(unreadable)";

fn shown_address(row: &PgRow, column: usize) -> sqlx::Result<Address> {
    let address = record::address(row, column, None)?;
    Ok(address.unwrap_or_else(|_| Address::new(UNREADABLE).expect("the text is a valid address")))
}

/// No id contains a zero byte, which the server would not take: nothing begins so then.
fn without_zero(prefix: &str) -> &str {
    if prefix.contains('\0') { "\n" } else { prefix }
}

fn place(row: &PgRow) -> sqlx::Result<Place> {
    Ok((row.try_get_unchecked(1)?, row.try_get(0)?))
}

fn write((attempt_at, seq): Place, endpoint: i32) -> Cursor {
    Cursor(format!("postgres-{endpoint}-{seq}-{}", attempt_at.micros()))
}

fn read(cursor: &Cursor, endpoint: i32) -> Result<Place> {
    let read = |text: &str| {
        let (owner, place) = text.strip_prefix("postgres-")?.split_once('-')?;
        let (seq, attempt_at) = place.split_once('-')?;
        let place = (PgInstant::from_micros(attempt_at.parse().ok()?), seq.parse().ok()?);
        (owner.parse() == Ok(endpoint)).then_some(place)
    };
    read(&cursor.0).ok_or_else(|| {
        let detail = "the cursor is not from this store; begin again without one";
        Fault::new(StoreErrorKind::Invalid, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_and_no_other_text_does() {
        for place in [(PgInstant::from_micros(-5), 7), (PgInstant::NEVER, 1)] {
            assert_eq!(read(&write(place, 3), 3).unwrap(), place);
            assert!(read(&write(place, 3), 4).is_err(), "another endpoint's");
        }
        for text in [
            "",
            "postgres",
            "postgres-3-7",
            "postgres-3-x-1",
            "sqlite-3-7-1",
            "postgres-3-7-1-",
            "postgres-3--",
        ] {
            assert!(read(&Cursor(text.to_owned()), 3).is_err(), "{text}");
        }
    }
}
