//! One thread that sleeps until the earliest due time and is woken for an earlier one.

use std::{
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};
use jiff::{SignedDuration, Timestamp};
use postdate_core::DelayedMessage;
use rusqlite::{Connection, TransactionBehavior};

use super::{
    File,
    file::{delete, earliest, insert, select_due},
};
use crate::cpu::{Measured, Stopwatch};

const BATCH: u32 = 500;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Stores one message after the other, `pause` apart, as `next` makes them, and measures how late each is
/// delivered.
pub(crate) fn lateness(
    file: &File,
    count: usize,
    pause: Duration,
    mut next: impl FnMut(usize) -> DelayedMessage,
) -> Result<Measured> {
    let (mut producer, consumer) = (file.connect()?, file.connect()?);
    let stopwatch = Stopwatch::start();
    let (stored, wake) = mpsc::channel();
    thread::scope(move |scope| {
        let consumer = scope.spawn(move || consume(consumer, &wake, count));
        for number in 0..count {
            thread::sleep((pause * u32::try_from(number)?).saturating_sub(stopwatch.elapsed()));
            store(&mut producer, &next(number), &stored)?;
        }
        let lateness = consumer.join().map_err(|_| anyhow!("the consumer panicked"))??;
        Ok(Measured { lateness, ..stopwatch.stop(count) })
    })
}

fn store(producer: &mut Connection, message: &DelayedMessage, stored: &Sender<()>) -> Result<()> {
    let transaction = producer.transaction_with_behavior(TransactionBehavior::Immediate)?;
    insert(&transaction, std::slice::from_ref(message))?;
    transaction.commit()?;
    Ok(stored.send(())?)
}

fn consume(mut connection: Connection, wake: &Receiver<()>, count: usize) -> Result<Vec<SignedDuration>> {
    let mut lateness = Vec::with_capacity(count);
    while lateness.len() < count {
        let now = Timestamp::now().as_microsecond();
        let rows = select_due(&connection, now, BATCH)?;
        if rows.is_empty() {
            let due = earliest(&connection)?;
            let wait = due.map_or(LONGEST_WAIT, |due| micros(due - Timestamp::now().as_microsecond()));
            match wake.recv_timeout(wait) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    ensure!(due.is_some(), "the producer stopped early");
                    thread::sleep(wait);
                }
            }
            continue;
        }
        let delivered = Timestamp::now().as_microsecond();
        lateness.extend(rows.iter().map(|row| SignedDuration::from_micros(delivered - row.due)));
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        delete(&transaction, &rows)?;
        transaction.commit()?;
    }
    Ok(lateness)
}

/// None below zero.
fn micros(count: i64) -> Duration {
    Duration::from_micros(count.try_into().unwrap_or(0))
}
