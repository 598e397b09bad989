//! fang: only as somewhere to store single messages. Its workers take one task at a time in an order that no index
//! serves, so that a drain would last for hours.

use ::fang::{
    AsyncRunnable, FangError, Scheduled, async_trait,
    asynk::async_queue::{AsyncQueue, AsyncQueueable},
    serde as fang_serde, typetag,
};
use anyhow::{Result, bail};
use fang_serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection, raw_sql};

use crate::{Aim, Message, Peer, deliveries};

#[derive(Clone)]
pub(crate) struct Fang(AsyncQueue);

#[derive(Serialize, Deserialize)]
#[serde(crate = "fang_serde")]
struct Deliver(Message);

#[async_trait]
#[typetag::serde]
impl AsyncRunnable for Deliver {
    async fn run(&self, _: &dyn AsyncQueueable) -> Result<(), FangError> {
        deliveries::deliver(&self.0);
        Ok(())
    }

    fn cron(&self) -> Option<Scheduled> {
        Some(Scheduled::ScheduleOnce(self.0.due()))
    }
}

impl Peer for Fang {
    async fn create(url: &str) -> Result<Self> {
        raw_sql(include_str!("fang_tasks.sql")).execute(&mut PgConnection::connect(url).await?).await?;
        let mut queue = AsyncQueue::builder().uri(url).max_pool_size(20_u32).build();
        queue.connect().await?;
        Ok(Self(queue))
    }

    async fn store(&self, messages: Vec<Message>) -> Result<()> {
        for message in messages {
            self.0.schedule_task(&Deliver(message)).await?;
        }
        Ok(())
    }

    async fn work(&self, _: usize, _: Aim) -> Result<()> {
        bail!("fang only stores here")
    }

    async fn left(&self) -> Result<u64> {
        bail!("fang only stores here")
    }
}
