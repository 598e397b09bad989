//! pgmq without its extension: the crate makes the tables and the statements. Batches of 1,000.
#![expect(deprecated, reason = "what replaces it wants an extension that the server need not have")]

use std::time::Duration;

use ::pgmq::PGMQueue;
use anyhow::{Context, Result};
use chrono::Utc;
use sqlx_0_8::{PgPool, postgres::PgPoolOptions, query_scalar};
use tokio::time::sleep;

use crate::{Aim, Message, Peer, deliveries};

const QUEUE: &str = "billing";
const LEFT: &str = "SELECT count(*) FROM pgmq.q_billing WHERE vt <= now()";
const BATCH: i32 = 1_000;
/// How long a worker may take, in seconds.
const LEASE: i32 = 30;

#[derive(Clone)]
pub(crate) struct Pgmq {
    pool: PgPool,
    queue: PGMQueue,
}

impl Peer for Pgmq {
    async fn create(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(20).connect(url).await?;
        let queue = PGMQueue::new_with_pool(pool.clone()).await;
        queue.create(QUEUE).await?;
        Ok(Self { pool, queue })
    }

    /// Delays are whole seconds from now, and the same for a batch.
    async fn store(&self, messages: Vec<Message>) -> Result<()> {
        let first = messages.first().context("a batch has messages")?;
        let delay = (first.due() - Utc::now()).as_seconds_f64().ceil().max(0.0) as u64;
        match &messages[..] {
            [one] => drop(self.queue.send_delay(QUEUE, one, delay).await?),
            many => drop(self.queue.send_batch_delay(QUEUE, many, delay).await?),
        }
        Ok(())
    }

    async fn work(&self, workers: usize, aim: Aim) -> Result<()> {
        for _ in 0..workers {
            let worker = self.clone();
            tokio::spawn(async move {
                let error = loop {
                    if let Err(error) = worker.take_batch(aim).await {
                        break error;
                    }
                };
                eprintln!("pgmq: {error:#}");
            });
        }
        Ok(())
    }

    async fn left(&self) -> Result<u64> {
        Ok(query_scalar::<_, i64>(LEFT).fetch_one(&self.pool).await? as u64)
    }
}

impl Pgmq {
    async fn take_batch(&self, aim: Aim) -> Result<()> {
        let read = match aim {
            Aim::Throughput => self.queue.read_batch::<Message>(QUEUE, Some(LEASE), BATCH).await?,
            Aim::Promptness => {
                let (longest, poll) = (Duration::from_secs(5), Duration::from_millis(100));
                let (longest, poll) = (Some(longest), Some(poll));
                self.queue.read_batch_with_poll(QUEUE, Some(LEASE), BATCH, longest, poll).await?
            }
        };
        let read = read.unwrap_or_default();
        if read.is_empty() {
            sleep(Duration::from_millis(5)).await;
            return Ok(());
        }
        let ids: Vec<i64> = read.iter().map(|read| read.msg_id).collect();
        read.iter().for_each(|read| deliveries::deliver(&read.message));
        self.queue.delete_batch(QUEUE, &ids).await?;
        Ok(())
    }
}
