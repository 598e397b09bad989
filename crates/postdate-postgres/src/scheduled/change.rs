//! Changing one's mind, against a dispatcher that may have claimed the message.
//!
//! Whoever has the lock of the row wins, and the other one is told.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use postdate_core::{Cancellation, Due, MessageId, Rescheduling};
use sqlx::Row;

use crate::{
    error::Result,
    sql::query,
    store::Shared,
    storer::check_due,
    time::{PgInstant, interval},
};

/// Others who change their minds hold a row for a moment only: who finds it held tries again after these pauses, and
/// takes it for a dispatcher's then.
const PAUSES: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(4), Duration::from_millis(16)];

pub(super) async fn cancel(shared: &Shared, ids: &[MessageId]) -> Result<Vec<Cancellation>> {
    let mut answers: HashMap<&str, Cancellation> = HashMap::new();
    let mut left: Vec<&str> = ids.iter().map(MessageId::as_str).collect();
    for pause in PAUSES.into_iter().map(Some).chain([None]) {
        let mut connection = shared.place.connections.lend().await?;
        let rows = query(&shared.place.sql.cancel).bind(shared.endpoint).bind(&left);
        let rows = rows.fetch_all(&mut *connection).await?;
        connection.give_back();
        // An answer of before stands until there is another one: a message that is gone now was sent.
        let found: HashMap<String, bool> =
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<sqlx::Result<_>>()?;
        for id in &left {
            answers.insert(
                id,
                match found.get(*id) {
                    Some(true) => Cancellation::Cancelled,
                    Some(false) => Cancellation::InFlight,
                    None => Cancellation::NotFound,
                },
            );
        }
        left.retain(|id| found.get(*id) == Some(&false));
        match pause {
            Some(pause) if !left.is_empty() => tokio::time::sleep(pause).await,
            _ => break,
        }
    }
    // A message that is named twice is cancelled once.
    Ok(ids
        .iter()
        .map(|id| match answers.get_mut(id.as_str()) {
            Some(answer) => std::mem::replace(answer, again(*answer)),
            None => Cancellation::NotFound,
        })
        .collect())
}

/// What to say of a message when it is named again.
fn again(answer: Cancellation) -> Cancellation {
    if answer == Cancellation::Cancelled { Cancellation::NotFound } else { answer }
}

pub(super) async fn reschedule(shared: &Shared, id: &MessageId, due: Due) -> Result<Rescheduling> {
    check_due(id, due, Timestamp::now())?;
    let (at, delay) = match due {
        Due::At(at) => (Some(PgInstant::ceil(at)), None),
        Due::After(delay) => (None, Some(interval(delay))),
    };
    for pause in PAUSES.into_iter().map(Some).chain([None]) {
        let mut connection = shared.place.connections.lend().await?;
        let row = query(&shared.place.sql.reschedule)
            .bind(shared.endpoint)
            .bind(id.as_str())
            .bind(at)
            .bind(&delay)
            .fetch_one(&mut *connection)
            .await?;
        connection.give_back();
        if let Some(due) = row.try_get_unchecked::<Option<PgInstant>, _>(0)? {
            shared.position.committed(due);
            shared.place.told_of(shared.endpoint, row.try_get_unchecked(2)?, due);
            return Ok(Rescheduling::Rescheduled(due.timestamp()));
        }
        match pause {
            _ if !row.try_get::<bool, _>(1)? => return Ok(Rescheduling::NotFound),
            Some(pause) => tokio::time::sleep(pause).await,
            None => break,
        }
    }
    Ok(Rescheduling::InFlight)
}
