//! Producers that insert and commit, each on its own connection.

use std::{thread, time::Duration};

use anyhow::{Result, anyhow};
use postdate_core::DelayedMessage;
use rusqlite::{Connection, TransactionBehavior};

use super::{File, file::insert};
use crate::{
    cpu::{Measured, Stopwatch},
    workload::deal,
};

/// Lets `producers` threads store their shares, `batch` messages in each commit, until all are stored or the
/// time is up.
pub(crate) fn store(
    file: &File,
    messages: &[DelayedMessage],
    producers: usize,
    batch: usize,
    longest: Duration,
) -> Result<Measured> {
    let connections = (0..producers).map(|_| file.connect()).collect::<Result<Vec<_>, _>>()?;
    let shares = deal(messages, producers, batch);
    let stopwatch = Stopwatch::start();
    let stored = thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .zip(shares)
            .map(|(connection, share)| scope.spawn(|| produce(connection, share, &stopwatch, longest)))
            .collect();
        let stored =
            threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a producer panicked"))?);
        stored.sum::<Result<usize>>()
    })?;
    Ok(stopwatch.stop(stored))
}

/// Stores without a clock: to fill a file before it is measured.
pub(crate) fn fill(connection: &mut Connection, messages: &[DelayedMessage]) -> Result<()> {
    commit(connection, messages)
}

fn produce(
    mut connection: Connection,
    share: Vec<Vec<DelayedMessage>>,
    stopwatch: &Stopwatch,
    longest: Duration,
) -> Result<usize> {
    let mut stored = 0;
    for messages in share {
        commit(&mut connection, &messages)?;
        stored += messages.len();
        if stopwatch.elapsed() > longest {
            break;
        }
    }
    Ok(stored)
}

fn commit(connection: &mut Connection, messages: &[DelayedMessage]) -> Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    insert(&transaction, messages)?;
    Ok(transaction.commit()?)
}
