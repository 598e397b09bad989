//! The queues of the reference backend with a fault that no single call shows.

use std::{collections::BTreeSet, num::NonZeroUsize, sync::Arc};

use async_trait::async_trait;
use postdate_core::{
    Address, Dispatcher, MemoryQueues, QueueStatus, QueuedMessage, Queues, ReceiveClaim, ReceivedBatch,
    Receiver, Selection, StoreError,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueFault {
    None,
    AbandonsToTheEnd,
    MovesInPart,
    PurgeCountsHeld,
    FindsOneOfEach,
    BrowsesFromBefore,
}

#[derive(Debug)]
pub(crate) struct FaultyQueues {
    pub(crate) queues: MemoryQueues,
    pub(crate) fault: QueueFault,
}

#[derive(Debug)]
struct FaultyReceiver {
    receiver: Arc<dyn Receiver>,
    queue: Address,
    fault: QueueFault,
}

#[derive(Debug)]
struct FaultyReceiveClaim {
    claim: Box<dyn ReceiveClaim>,
    queue: Address,
    fault: QueueFault,
}

#[async_trait]
impl Queues for FaultyQueues {
    async fn create(&self, queue: &Address) -> Result<bool, StoreError> {
        self.queues.create(queue).await
    }

    async fn list(&self) -> Result<Vec<QueueStatus>, StoreError> {
        self.queues.list().await
    }

    async fn purge(&self, queue: &Address) -> Result<u64, StoreError> {
        let all = self.queues.list().await?;
        let purged = self.queues.purge(queue).await?;
        let depth = all.iter().find(|status| status.name == *queue).map_or(0, |status| status.depth);
        Ok(if self.fault == QueueFault::PurgeCountsHeld { depth } else { purged })
    }

    async fn browse(
        &self,
        queue: &Address,
        after: u64,
        limit: NonZeroUsize,
    ) -> Result<Vec<QueuedMessage>, StoreError> {
        let early = u64::from(self.fault == QueueFault::BrowsesFromBefore);
        self.queues.browse(queue, after.saturating_sub(early), limit).await
    }

    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        self.queues.dispatcher()
    }

    async fn receiver(&self, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError> {
        let receiver = self.queues.receiver(queue).await?;
        Ok(Arc::new(FaultyReceiver { receiver, queue: queue.clone(), fault: self.fault }))
    }
}

#[async_trait]
impl Receiver for FaultyReceiver {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        let mut batch = self.receiver.try_receive(selection).await?;
        if self.fault == QueueFault::FindsOneOfEach && matches!(selection, Selection::Ids(_)) {
            let mut seen = BTreeSet::new();
            let is_first = |queued: &QueuedMessage| seen.insert(queued.message.id.clone());
            let (first, others): (Vec<_>, Vec<_>) = batch.messages.into_iter().partition(is_first);
            let others: Vec<_> = others.iter().map(|queued| queued.position).collect();
            batch.claim.abandon(&others).await?;
            batch.messages = first;
        }
        let (queue, fault) = (self.queue.clone(), self.fault);
        batch.claim = Box::new(FaultyReceiveClaim { claim: batch.claim, queue, fault });
        Ok(batch)
    }

    async fn changed(&self) {
        self.receiver.changed().await;
    }
}

#[async_trait]
impl ReceiveClaim for FaultyReceiveClaim {
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        self.claim.complete(positions).await
    }

    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        if self.fault == QueueFault::AbandonsToTheEnd {
            return self.claim.move_to(positions, &self.queue).await;
        }
        self.claim.abandon(positions).await
    }

    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError> {
        let moved = self.claim.move_to(positions, queue).await;
        if moved.is_err() && self.fault == QueueFault::MovesInPart {
            self.claim.complete(positions).await?;
        }
        moved
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        self.claim.renew().await
    }
}
