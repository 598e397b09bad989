//! postdate, as a program uses it.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use futures::future::join_all;
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

/// A store that stays open: closing a file writes its log back, which would be measured with what comes next.
pub(crate) struct Ours {
    /// As many as dispatch from it, each as if it were alone.
    handles: Vec<Arc<dyn Backend>>,
    queues: Arc<dyn Queues>,
}

impl Ours {
    pub(crate) fn on_sqlite(ground: &Ground, folder: &Path) -> Result<Self> {
        ground.runtime.block_on(async {
            let sqlite = Sqlite::open(folder.join("ours.db")).await?;
            let queues = Arc::new(sqlite.queues());
            Self::set_up(vec![Arc::new(sqlite)], queues).await
        })
    }

    pub(crate) async fn set_up(handles: Vec<Arc<dyn Backend>>, queues: Arc<dyn Queues>) -> Result<Self> {
        handles[0].set_up(&EndpointName::new(ENDPOINT)?).await?;
        queues.create(&queue()).await?;
        Ok(Self { handles, queues })
    }

    /// Stores without a clock: to fill a file before it is measured.
    pub(crate) fn fill(&self, ground: &Ground, messages: &[DelayedMessage]) -> Result<()> {
        ground.runtime.block_on(async {
            let store = self.handles[0].open(&EndpointName::new(ENDPOINT)?, TransactionMode::None).await?;
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
            let delivery = Arc::new(self.deliver(&self.handles[0], Arc::new(Nowhere), nobody).await?);
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
            let mut deliveries = Vec::new();
            for handle in &self.handles {
                let progress = Arc::clone(&progress);
                deliveries.push(match to {
                    To::Nowhere => self.deliver(handle, Arc::new(Nowhere), progress).await?,
                    To::LocalQueue => self.move_locally(handle, progress).await?,
                });
            }
            progress.done().await;
            let delivered = progress.delivered();
            join_all(deliveries.iter().map(DelayedDelivery::stop)).await;
            Ok(stopwatch.stop(delivered))
        })
    }

    /// Stores one message after the other, `pause` apart, as `next` makes them, and measures how late each is
    /// delivered. Then `watch` may look at those who have nothing more to do.
    pub(crate) fn lateness(
        &self,
        ground: &Ground,
        count: usize,
        pause: Duration,
        mut next: impl FnMut(usize) -> DelayedMessage,
        watch: impl AsyncFnOnce(Measured) -> Result<Measured>,
    ) -> Result<Measured> {
        ground.runtime.block_on(async {
            let (arrivals, progress) = (Arc::new(Arrivals::default()), Arc::new(Progress::until(count)));
            let mut deliveries = Vec::new();
            for handle in &self.handles {
                let arriving: Arc<dyn Dispatcher> = Arc::<Arrivals>::clone(&arrivals);
                deliveries.push(self.deliver(handle, arriving, Arc::clone(&progress)).await?);
            }
            let mut sent = Vec::with_capacity(count);
            let stopwatch = Stopwatch::start();
            for number in 0..count {
                let begins = pause * u32::try_from(number)?;
                tokio::time::sleep(begins.saturating_sub(stopwatch.elapsed())).await;
                let message = next(number);
                sent.push((message.message.id.clone(), due(&message)));
                deliveries[0].send_batch(&[message]).await?;
            }
            progress.done().await;
            let measured = watch(stopwatch.stop(count)).await?;
            join_all(deliveries.iter().map(DelayedDelivery::stop)).await;
            Ok(Measured { lateness: arrivals.lateness(&sent)?, ..measured })
        })
    }

    async fn deliver(
        &self,
        handle: &Arc<dyn Backend>,
        to: Arc<dyn Dispatcher>,
        progress: Arc<Progress>,
    ) -> Result<DelayedDelivery> {
        let builder = DelayedDelivery::builder(ENDPOINT).store(Arc::clone(handle)).without_set_up();
        let builder = builder.dispatcher(to).error_dispatcher(self.queues.dispatcher());
        Ok(builder.observer(progress).start().await?)
    }

    async fn move_locally(
        &self,
        handle: &Arc<dyn Backend>,
        progress: Arc<Progress>,
    ) -> Result<DelayedDelivery> {
        let queues = self.queues.dispatcher();
        let builder = DelayedDelivery::builder(ENDPOINT).store(Arc::clone(handle)).without_set_up();
        let builder = builder.dispatcher(queues);
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
