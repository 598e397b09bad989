//! apalis-postgres: batches of 500, as many at once. It marks what is done and keeps it.

use std::time::Duration;

use ::apalis::prelude::*;
use anyhow::{Result, anyhow};
use apalis_postgres::{Config, PgPool, PostgresStorage};
use futures::stream;
use sqlx::{postgres::PgPoolOptions, query_scalar};

use crate::{Aim, Message, Peer, deliveries};

const QUEUE: &str = "billing";
const LEFT: &str = "SELECT count(*) FROM apalis.jobs WHERE run_at <= now() AND status <> 'Done'";
const BATCH: usize = 500;

#[derive(Clone)]
pub(crate) struct Apalis {
    pool: PgPool,
    jobs: PostgresStorage<Message>,
}

impl Peer for Apalis {
    async fn create(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(20).connect(url).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self { jobs: storage(&pool), pool })
    }

    async fn store(&self, messages: Vec<Message>) -> Result<()> {
        let mut jobs = self.jobs.clone();
        let tasks: Vec<_> = messages.into_iter().map(task).collect();
        let stored = match <[_; 1]>::try_from(tasks) {
            Ok([one]) => jobs.push_task(one).await,
            Err(many) => jobs.push_all(&mut stream::iter(many)).await,
        };
        stored.map_err(|error| anyhow!("{error:?}"))
    }

    async fn work(&self, workers: usize, aim: Aim) -> Result<()> {
        let poll = Duration::from_millis(match aim {
            Aim::Throughput => 20,
            Aim::Promptness => 100,
        });
        for number in 0..workers {
            let jobs = storage(&self.pool).poll_with_strategy(Strategy::new().interval(poll));
            let worker = WorkerBuilder::new(format!("worker-{number}")).backend(jobs).concurrency(BATCH);
            let worker = worker.build(deliver);
            tokio::spawn(async move {
                if let Err(error) = worker.run().await {
                    eprintln!("apalis: {error:?}");
                }
            });
        }
        Ok(())
    }

    async fn left(&self) -> Result<u64> {
        Ok(query_scalar::<_, i64>(LEFT).fetch_one(&self.pool).await? as u64)
    }
}

async fn deliver(message: Message) -> Result<(), BoxDynError> {
    deliveries::deliver(&message);
    Ok(())
}

fn storage(pool: &PgPool) -> PostgresStorage<Message> {
    PostgresStorage::new(pool).with_config(Config::default().queue(QUEUE).batch_size(BATCH))
}

/// Due times are whole seconds.
fn task(message: Message) -> Task<Message> {
    let due = message.due().timestamp() as u64;
    TaskBuilder::new(message).run_at_timestamp(due).max_attempts(10).build()
}
