//! Lock what is due in an open transaction, dispatch it or put it into a queue, delete it, commit; until nothing is due
//! any more.

use std::hint::black_box;

use anyhow::Result;
use futures::future::try_join_all;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use super::table::{delete, enqueue, lock_due};
use crate::{
    bounds::drain::To,
    cpu::{Measured, Stopwatch},
    postgres::server::Database,
};

pub(crate) async fn drain(database: &Database, workers: usize, to: To) -> Result<Measured> {
    let stopwatch = Stopwatch::start();
    let connections = try_join_all((0..workers).map(|_| database.connect())).await?;
    let mut running: JoinSet<_> = connections.into_iter().map(|connection| work(connection, to)).collect();
    let mut drained = 0;
    while let Some(share) = running.join_next().await {
        drained += share??;
    }
    Ok(stopwatch.stop(drained))
}

/// What the others hold when nothing else is due is theirs: a worker that finds nothing has finished.
async fn work(mut connection: PgConnection, to: To) -> Result<usize> {
    let mut drained = 0;
    loop {
        let mut transaction = connection.begin().await?;
        let rows = lock_due(&mut transaction).await?;
        if rows.is_empty() {
            return Ok(drained);
        }
        match to {
            To::Nowhere => drop(black_box(&rows)),
            To::LocalQueue => enqueue(&mut transaction, &rows).await?,
        }
        delete(&mut transaction, &rows).await?;
        transaction.commit().await?;
        drained += rows.len();
    }
}
