//! A receiver with one fault.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures::{FutureExt as _, future::poll_immediate};
use postdate_core::{
    MemoryQueues, MessageId, Operation, QueuedMessage, ReceivedBatch, Receiver, Selection, StoreError,
    StoreErrorKind,
};
use tokio::task::yield_now;

use crate::{Fault, claim::FaultyClaim};

#[derive(Debug)]
pub(crate) struct FaultyReceiver {
    pub(crate) receiver: Arc<dyn Receiver>,
    pub(crate) queues: MemoryQueues,
    pub(crate) fault: Fault,
    pub(crate) handle: Weak<()>,
}

/// Completes what was received for a call that went away.
struct Lost(Option<ReceivedBatch>);

#[async_trait]
impl Receiver for FaultyReceiver {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        if self.fault == Fault::EndsWithItsHandle && self.handle.strong_count() == 0 {
            let closed = "the handle is closed";
            return Err(StoreError::new(StoreErrorKind::Other, Operation::Receive, "faulty", closed));
        }
        let mut batch = self.receiver.try_receive(selection).await?;
        match self.fault {
            Fault::CountsNoDeliveries => batch.messages.iter_mut().for_each(|queued| queued.deliveries = 0),
            Fault::ForgetsHolds => {
                batch.claim.abandon(&positions(&batch.messages)).await?;
            }
            Fault::SelectsOneForAnId => select_one_each(&mut batch).await?,
            Fault::LosesWhatADroppedCallTook => {
                let mut lost = Lost(Some(batch));
                yield_now().await;
                batch = lost.0.take().unwrap();
            }
            _ => {}
        }
        let claim = FaultyClaim {
            claim: Some(batch.claim),
            messages: batch.messages.clone(),
            queues: self.queues.clone(),
            fault: self.fault,
            was_answered_false: false,
        };
        Ok(ReceivedBatch { claim: Box::new(claim), ..batch })
    }

    async fn changed(&self) {
        match self.fault {
            Fault::NeverWakes => std::future::pending().await,
            Fault::MissesWhatWasBefore => while poll_immediate(self.receiver.changed()).await.is_some() {},
            _ => {}
        }
        self.receiver.changed().await;
    }
}

async fn select_one_each(batch: &mut ReceivedBatch) -> Result<(), StoreError> {
    let mut seen: Vec<MessageId> = Vec::new();
    let (kept, others): (Vec<_>, Vec<_>) = batch.messages.drain(..).partition(|queued| {
        let is_new = !seen.contains(&queued.message.id);
        seen.push(queued.message.id.clone());
        is_new
    });
    batch.claim.abandon(&positions(&others)).await?;
    batch.messages = kept;
    Ok(())
}

fn positions(messages: &[QueuedMessage]) -> Vec<u64> {
    messages.iter().map(|queued| queued.position).collect()
}

impl Drop for Lost {
    fn drop(&mut self) {
        if let Some(mut batch) = self.0.take() {
            let held = positions(&batch.messages);
            batch.claim.complete(&held).now_or_never().unwrap().unwrap();
        }
    }
}
