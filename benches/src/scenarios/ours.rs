//! postdate on SQLite, as a program uses it.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use postdate_core::{
    Backend, DelayedDelivery, DelayedMessage, Dispatcher, EndpointName, Queues, TransactionMode,
};
use postdate_sqlite::Sqlite;
use tokio::task::JoinSet;

use super::sinks::{Arrivals, Nowhere, Progress};
use crate::{
    bounds::drain::To,
    contest::Ground,
    cpu::{Measured, Stopwatch},
    workload::{deal, due, queue},
};

const ENDPOINT: &str = "bench";

/// A file that stays open: closing it writes its log back, which would be measured with what comes next.
pub(crate) struct Ours(Sqlite);

impl Ours {
    pub(crate) fn create(ground: &Ground, folder: &Path) -> Result<Self> {
        ground.runtime.block_on(async {
            let sqlite = Sqlite::open(folder.join("ours.db")).await?;
            sqlite.set_up(&EndpointName::new(ENDPOINT)?).await?;
            sqlite.queues().create(&queue()).await?;
            Ok(Self(sqlite))
        })
    }

    /// Stores without a clock: to fill a file before it is measured.
    pub(crate) fn fill(&self, ground: &Ground, messages: &[DelayedMessage]) -> Result<()> {
        ground.runtime.block_on(async {
            let store = self.0.open(&EndpointName::new(ENDPOINT)?, TransactionMode::None).await?;
            store.store(messages).await?;
            Ok(())
        })
    }

    /// Lets tasks store their shares, `batch` messages in each call, until all are stored or the time is up.
    pub(crate) fn store(
        &self,
        ground: &Ground,
        messages: &[DelayedMessage],
        producers: usize,
        batch: usize,
        longest: Duration,
    ) -> Result<Measured> {
        let calls = deal(messages, producers, batch);
        ground.runtime.block_on(async {
            let nobody = Arc::new(Progress::until(usize::MAX));
            let delivery = Arc::new(self.deliver(Arc::new(Nowhere), nobody).await?);
            let stopwatch = Arc::new(Stopwatch::start());
            let mut producers = JoinSet::new();
            for calls in calls {
                producers.spawn(produce(Arc::clone(&delivery), calls, Arc::clone(&stopwatch), longest));
            }
            let mut stored = 0;
            while let Some(share) = producers.join_next().await {
                stored += share??;
            }
            let measured = stopwatch.stop(stored);
            delivery.stop().await;
            Ok(measured)
        })
    }

    /// Delivers `due` messages that are stored already.
    pub(crate) fn drain(&self, ground: &Ground, to: To, due: usize) -> Result<Measured> {
        ground.runtime.block_on(async {
            let progress = Arc::new(Progress::until(due));
            let stopwatch = Stopwatch::start();
            let delivery = match to {
                To::Nowhere => self.deliver(Arc::new(Nowhere), Arc::clone(&progress)).await?,
                To::LocalQueue => self.move_locally(Arc::clone(&progress)).await?,
            };
            progress.done().await;
            let delivered = progress.delivered();
            delivery.stop().await;
            Ok(stopwatch.stop(delivered))
        })
    }

    /// Stores one message after the other, `pause` apart, as `next` makes them, and measures how late each is
    /// delivered.
    pub(crate) fn lateness(
        &self,
        ground: &Ground,
        count: usize,
        pause: Duration,
        mut next: impl FnMut(usize) -> DelayedMessage,
    ) -> Result<Measured> {
        ground.runtime.block_on(async {
            let (arrivals, progress) = (Arc::new(Arrivals::default()), Arc::new(Progress::until(count)));
            let arriving: Arc<dyn Dispatcher> = Arc::<Arrivals>::clone(&arrivals);
            let delivery = self.deliver(arriving, Arc::clone(&progress)).await?;
            let mut sent = Vec::with_capacity(count);
            let stopwatch = Stopwatch::start();
            for number in 0..count {
                let begins = pause * u32::try_from(number)?;
                tokio::time::sleep(begins.saturating_sub(stopwatch.elapsed())).await;
                let message = next(number);
                sent.push((message.message.id.clone(), due(&message)));
                delivery.send_batch(&[message]).await?;
            }
            progress.done().await;
            let measured = stopwatch.stop(count);
            delivery.stop().await;
            Ok(Measured { lateness: arrivals.lateness(&sent)?, ..measured })
        })
    }

    async fn deliver(&self, to: Arc<dyn Dispatcher>, progress: Arc<Progress>) -> Result<DelayedDelivery> {
        let queues = self.0.queues().dispatcher();
        let builder = DelayedDelivery::builder(ENDPOINT).store(self.0.clone()).dispatcher(to);
        Ok(builder.error_dispatcher(queues).observer(progress).start().await?)
    }

    async fn move_locally(&self, progress: Arc<Progress>) -> Result<DelayedDelivery> {
        let queues = self.0.queues().dispatcher();
        let builder = DelayedDelivery::builder(ENDPOINT).store(self.0.clone()).dispatcher(queues);
        let exactly_once = builder.transaction_mode(TransactionMode::TransactionScope);
        Ok(exactly_once.observer(progress).start().await?)
    }
}

async fn produce(
    delivery: Arc<DelayedDelivery>,
    calls: Vec<Vec<DelayedMessage>>,
    stopwatch: Arc<Stopwatch>,
    longest: Duration,
) -> Result<usize> {
    let mut stored = 0;
    for messages in calls {
        stored += delivery.send_batch(&messages).await?.len();
        if stopwatch.elapsed() > longest {
            break;
        }
    }
    Ok(stored)
}
