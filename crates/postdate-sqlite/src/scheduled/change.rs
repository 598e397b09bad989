//! Changing one's mind, against a dispatcher that may have claimed the message.
//!
//! Claiming happens in write transactions as this does, whatever process does it, so one of the two is first and
//! the other sees what it did.

use postdate_core::{Cancellation, Due, MessageId, Rescheduling, StoreErrorKind, wake::Topic};
use rusqlite::{Connection, OptionalExtension};

use crate::{
    error::{Fault, Result},
    file::InFlight,
    time::{ceil_micros, from_micros},
    writer::Tx,
};

const FIND: &str = "SELECT seq FROM message WHERE endpoint = ?1 AND id = ?2";

const DELETE: &str = "DELETE FROM message WHERE seq = ?1";

const RESCHEDULE: &str = "UPDATE message SET due = ?2, attempt_at = ?2 WHERE seq = ?1";

pub(super) fn cancel(
    tx: &mut Tx<'_>,
    endpoint: i64,
    in_flight: &InFlight,
    ids: &[MessageId],
) -> Result<Vec<Cancellation>> {
    let held = in_flight.view()?;
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(match find(tx.connection, endpoint, id)? {
            None => Cancellation::NotFound,
            Some(seq) if held.contains(seq) => Cancellation::InFlight,
            Some(seq) => {
                tx.connection.prepare_cached(DELETE)?.execute([seq])?;
                Cancellation::Cancelled
            }
        });
    }
    Ok(answers)
}

pub(super) fn reschedule(
    tx: &mut Tx<'_>,
    endpoint: i64,
    in_flight: &InFlight,
    id: &MessageId,
    due: Due,
) -> Result<Rescheduling> {
    let due = due.resolve(tx.shared.clock.now()).ok_or_else(|| {
        let detail = format!("message `{id}` would be due after the end of time, the year 9999; choose less");
        Fault::new(StoreErrorKind::Invalid, detail)
    })?;
    let Some(seq) = find(tx.connection, endpoint, id)? else { return Ok(Rescheduling::NotFound) };
    if in_flight.view()?.contains(seq) {
        return Ok(Rescheduling::InFlight);
    }
    let due = ceil_micros(due);
    tx.connection.prepare_cached(RESCHEDULE)?.execute([seq, due])?;
    tx.ring(Topic::Endpoint(endpoint), due);
    Ok(Rescheduling::Rescheduled(from_micros(due)))
}

fn find(connection: &Connection, endpoint: i64, id: &MessageId) -> Result<Option<i64>> {
    let mut statement = connection.prepare_cached(FIND)?;
    Ok(statement.query_row((endpoint, id.as_str()), |row| row.get(0)).optional()?)
}
