//! One task that sleeps until the earliest due time and is woken for an earlier one.

use std::time::Duration;

use anyhow::{Result, bail};
use jiff::{SignedDuration, Timestamp};
use postdate_core::DelayedMessage;
use sqlx::{Connection as _, Executor as _, PgConnection, postgres::PgListener};
use tokio::time::{sleep, timeout};

use super::table::{delete, insert, lock_due, wait};
use crate::{
    cpu::{Measured, Stopwatch},
    postgres::server::Database,
};

const CHANNEL: &str = "stored";
const NOTIFY: &str = "NOTIFY stored";
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Stores one message after the other, `pause` apart, as `next` makes them, and measures how late each is delivered. Then
/// `watch` may look at the task that has nothing more to do.
pub(crate) async fn lateness(
    database: &Database,
    count: usize,
    pause: Duration,
    mut next: impl FnMut(usize) -> DelayedMessage,
    watch: impl AsyncFnOnce(Measured) -> Result<Measured>,
) -> Result<Measured> {
    let (mut producer, consumer) = (database.connect().await?, database.connect().await?);
    let mut wake = PgListener::connect(database.url()).await?;
    wake.listen(CHANNEL).await?;
    let stopwatch = Stopwatch::start();
    let (late, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    let consumer = tokio::spawn(consume(consumer, wake, late));
    for number in 0..count {
        sleep((pause * u32::try_from(number)?).saturating_sub(stopwatch.elapsed())).await;
        insert(&mut producer, &[next(number)]).await?;
        // After the commit: within it, it would make commits wait for each other.
        producer.execute(NOTIFY).await?;
    }
    let mut lateness = Vec::with_capacity(count);
    while lateness.len() < count {
        let Some(late) = arrived.recv().await else { bail!("the consumer ended: {:?}", consumer.await) };
        lateness.push(late);
    }
    let measured = watch(stopwatch.stop(count)).await?;
    consumer.abort();
    Ok(Measured { lateness, ..measured })
}

async fn consume(
    mut connection: PgConnection,
    mut wake: PgListener,
    late: tokio::sync::mpsc::UnboundedSender<SignedDuration>,
) -> Result<()> {
    loop {
        let mut transaction = connection.begin().await?;
        let rows = lock_due(&mut transaction).await?;
        if rows.is_empty() {
            transaction.rollback().await?;
            let micros = wait(&mut connection).await?;
            let wait =
                micros.map_or(LONGEST_WAIT, |micros| Duration::from_micros(micros.try_into().unwrap_or(0)));
            if let Ok(woken) = timeout(wait, wake.recv()).await {
                woken?;
            }
            continue;
        }
        let delivered = Timestamp::now();
        rows.iter().try_for_each(|row| late.send(delivered.duration_since(row.due)))?;
        delete(&mut transaction, &rows).await?;
        transaction.commit().await?;
    }
}
