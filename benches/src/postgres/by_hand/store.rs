//! Producers that insert and commit, each on its own connection.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures::future::try_join_all;
use postdate_core::DelayedMessage;
use sqlx::PgConnection;
use tokio::task::JoinSet;

use super::table::insert;
use crate::{
    cpu::{Measured, Stopwatch},
    postgres::server::Database,
    workload::deal,
};

/// Lets `producers` tasks store their shares, `batch` messages in each commit, until all are stored or the time is up.
pub(crate) async fn store(
    database: &Database,
    messages: &[DelayedMessage],
    producers: usize,
    batch: usize,
    longest: Duration,
) -> Result<Measured> {
    let connections = try_join_all((0..producers).map(|_| database.connect())).await?;
    let shares = deal(messages, producers, batch);
    let stopwatch = Arc::new(Stopwatch::start());
    let mut running = JoinSet::new();
    for (connection, share) in connections.into_iter().zip(shares) {
        running.spawn(produce(connection, share, Arc::clone(&stopwatch), longest));
    }
    let mut stored = 0;
    while let Some(share) = running.join_next().await {
        stored += share??;
    }
    Ok(stopwatch.stop(stored))
}

/// Stores without a clock: to fill a table before it is measured.
pub(crate) async fn fill(connection: &mut PgConnection, messages: &[DelayedMessage]) -> Result<()> {
    Ok(insert(connection, messages).await?)
}

async fn produce(
    mut connection: PgConnection,
    share: Vec<Vec<DelayedMessage>>,
    stopwatch: Arc<Stopwatch>,
    longest: Duration,
) -> Result<usize> {
    let mut stored = 0;
    for messages in share {
        insert(&mut connection, &messages).await?;
        stored += messages.len();
        if stopwatch.elapsed() > longest {
            break;
        }
    }
    Ok(stored)
}
