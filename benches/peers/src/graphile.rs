//! graphile_worker with a local queue and batched completion, which its documentation recommends for throughput.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions, query_scalar};

use crate::{Aim, Message, Peer, deliveries};

const LEFT: &str = "SELECT count(*) FROM graphile_worker._private_jobs WHERE run_at <= now()";

#[derive(Clone)]
pub(crate) struct Graphile {
    pool: PgPool,
    jobs: Arc<WorkerUtils>,
}

#[derive(Serialize, Deserialize)]
struct Deliver(Message);

impl TaskHandler for Deliver {
    const IDENTIFIER: &'static str = "deliver";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        deliveries::deliver(&self.0);
        Ok::<(), String>(())
    }
}

impl Peer for Graphile {
    async fn create(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(20).connect(url).await?;
        let jobs = options(&pool).init().await?.create_utils();
        Ok(Self { pool, jobs: Arc::new(jobs) })
    }

    async fn store(&self, messages: Vec<Message>) -> Result<()> {
        let spec = |message: &Message| JobSpec::builder().run_at(message.due()).build();
        if let [message] = &messages[..] {
            self.jobs.add_raw_job(Deliver::IDENTIFIER, message.clone(), spec(message)).await?;
            return Ok(());
        }
        let job = |message: &Message| {
            let payload = serde_json::to_value(message)?;
            Ok(RawJobSpec { identifier: Deliver::IDENTIFIER.into(), payload, spec: spec(message) })
        };
        let jobs = messages.iter().map(job).collect::<Result<Vec<_>>>()?;
        self.jobs.add_raw_jobs(&jobs).await?;
        Ok(())
    }

    async fn work(&self, workers: usize, aim: Aim) -> Result<()> {
        let (local, poll) = match aim {
            Aim::Throughput => (500, Duration::from_millis(100)),
            Aim::Promptness => (50, Duration::from_secs(1)),
        };
        for _ in 0..workers {
            let local = LocalQueueConfig::builder().size(local).queue_count(1).build();
            let options = options(&self.pool).concurrency(24).poll_interval(poll).local_queue(local);
            let batched = Duration::from_millis(1);
            let options = options.complete_job_batch_delay(batched).fail_job_batch_delay(batched);
            let worker = options.init().await?;
            tokio::spawn(async move {
                if let Err(error) = worker.run().await {
                    eprintln!("graphile_worker: {error}");
                }
            });
        }
        Ok(())
    }

    async fn left(&self) -> Result<u64> {
        Ok(query_scalar::<_, i64>(LEFT).fetch_one(&self.pool).await? as u64)
    }
}

fn options(pool: &PgPool) -> WorkerOptions {
    let options = WorkerOptions::default().pg_pool(pool.clone()).schema("graphile_worker");
    options.define_job::<Deliver>().listen_os_shutdown_signals(false)
}
