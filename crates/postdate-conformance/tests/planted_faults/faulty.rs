//! The reference backend with one fault.

mod backend;
mod claim;
mod fetch;
mod meddled;
mod store;

use std::{num::NonZeroUsize, sync::Arc};

use async_trait::async_trait;
use postdate_core::{
    Address, DispatchError, Dispatcher, Enlistment, MemoryQueues, OutgoingMessage, QueueStatus,
    QueuedMessage, Queues, ReceiveClaim, ReceivedBatch, Receiver, Selection, StoreError,
};

pub(crate) use backend::FaultyBackend;
pub(crate) use meddled::Meddlings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    DeliversEarly,
    LosesTheOrder,
    AcceptsAnyMode,
    TruncatesBodies,
    RemovesAlways,
    ForgetsFailures,
    ForgetsClaims,
    KnowsNoConflict,
    NextDueCountsHeld,
    CancelLies,
    IgnoresExceptions,
    StoresInPart,
    RenewsInVain,
    FoldsEndpoints,
    Panics,
    // How a backend is set up and opened.
    SetsUpOnce,
    CutsEndpointNames,
    AcceptsANewerSchema,
    LosesMessagesWithAnOlderSchema,
    MakesTablesWhenOpened,
    BlamesNobodyForAMissingRight,
    // What is stored and shown.
    RoundsDown,
    TurnsLongDelaysIntoNone,
    LosesTheRepeatedHour,
    MakesTextOfHeaders,
    StoresInSteps,
    CancelsInSteps,
    CancelsWhatItSawFree,
    SkipsLinesOfAList,
    TakesPrefixesForPatterns,
    ShowsBodies,
    TellsBodies,
    NeverWakes,
    AlwaysWakes,
    // What is fetched, and when.
    BringsTooMany,
    BringsOneAtATime,
    ReadsOnePage,
    KeepsAWatermark,
    HidesContention,
    LosesWhatNobodyTook,
    AsksToComeBackAtOnce,
    NeverHandsOver,
    AsksToComeBackLate,
    StopsAtUnreadableRows,
    PutsAsideWholeBatches,
    LeavesUnreadableRowsDue,
    HidesUnreadableRows,
    // What a claim does.
    RemovesNothing,
    RemovesInSteps,
    CountsInSteps,
    CommitsInSteps,
    CountsReleases,
    CountsDrops,
    KeepsWhatIsDropped,
    IgnoresRetryTimes,
    ForgetsErrors,
    ChokesOnNul,
    KnowsNoFence,
    SendsOutside,
    StopsAtAFailure,
    BrowsingTakes,
    CountsNoDeliveries,
    RenewsWhatIsLost,
}

#[derive(Clone, Debug)]
pub(crate) struct FaultyQueues {
    pub(crate) queues: MemoryQueues,
    pub(crate) fault: Fault,
}

#[derive(Debug)]
struct FaultyReceiver {
    receiver: Arc<dyn Receiver>,
    fault: Fault,
}

#[derive(Debug)]
struct FaultyReceiveClaim {
    claim: Box<dyn ReceiveClaim>,
    fault: Fault,
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
        self.queues.purge(queue).await
    }

    async fn browse(
        &self,
        queue: &Address,
        after: u64,
        limit: NonZeroUsize,
    ) -> Result<Vec<QueuedMessage>, StoreError> {
        let seen = self.queues.browse(queue, after, limit).await?;
        if self.fault == Fault::BrowsingTakes {
            self.queues.purge(queue).await?;
        }
        Ok(seen)
    }

    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(self.clone())
    }

    async fn receiver(&self, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError> {
        let receiver = self.queues.receiver(queue).await?;
        Ok(Arc::new(FaultyReceiver { receiver, fault: self.fault }))
    }
}

#[async_trait]
impl Dispatcher for FaultyQueues {
    async fn joins(&self, transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        self.queues.dispatcher().joins(transaction).await
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        within: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        let dispatcher = self.queues.dispatcher();
        match self.fault {
            Fault::SendsOutside => dispatcher.dispatch(messages, None).await,
            Fault::StopsAtAFailure => {
                let mut outcomes = Vec::new();
                for message in messages {
                    match outcomes.last() {
                        Some(Err::<(), DispatchError>(error)) => {
                            outcomes.push(Err(DispatchError::new(error.kind(), "stopped")));
                        }
                        _ => outcomes.extend(dispatcher.dispatch(std::slice::from_ref(message), None).await),
                    }
                }
                outcomes
            }
            _ => dispatcher.dispatch(messages, within).await,
        }
    }
}

#[async_trait]
impl Receiver for FaultyReceiver {
    async fn try_receive(&self, selection: &Selection) -> Result<ReceivedBatch, StoreError> {
        let mut batch = self.receiver.try_receive(selection).await?;
        if self.fault == Fault::CountsNoDeliveries {
            batch.messages.iter_mut().for_each(|queued| queued.deliveries = 0);
        }
        let claim = Box::new(FaultyReceiveClaim { claim: batch.claim, fault: self.fault });
        Ok(ReceivedBatch { claim, ..batch })
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
        self.claim.abandon(positions).await
    }

    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError> {
        self.claim.move_to(positions, queue).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        match self.claim.renew().await {
            Err(_) if self.fault == Fault::RenewsWhatIsLost => Ok(()),
            renewed => renewed,
        }
    }
}
