//! Queues and their dispatcher with one fault.

use std::{num::NonZeroUsize, slice, sync::Arc};

use async_trait::async_trait;
use futures::FutureExt as _;
use postdate_core::{
    Address, DispatchError, DispatchErrorKind, Dispatcher, Enlistment, MemoryQueues, OutgoingMessage,
    QueueStatus, QueuedMessage, Queues, Receiver, StoreError,
};
use tokio::task::yield_now;

use crate::{Fault, receiver::FaultyReceiver};

/// Less than what the queues behind take.
const SAID_LIMIT: usize = 2 << 20;

#[derive(Clone, Debug)]
pub(crate) struct FaultyQueues {
    queues: MemoryQueues,
    fault: Fault,
    /// Ends with the handle.
    handle: Arc<()>,
}

/// Sends again unless it is disarmed.
struct Again<'a> {
    dispatcher: &'a dyn Dispatcher,
    messages: &'a [OutgoingMessage],
}

impl FaultyQueues {
    pub(crate) fn new(queues: MemoryQueues, fault: Fault) -> Self {
        Self { queues, fault, handle: Arc::default() }
    }

    fn name(&self, queue: &Address) -> Address {
        match self.fault {
            Fault::FoldsNames => Address::new(queue.as_str().to_ascii_lowercase()).unwrap(),
            _ => queue.clone(),
        }
    }
}

#[async_trait]
impl Queues for FaultyQueues {
    async fn create(&self, queue: &Address) -> Result<bool, StoreError> {
        let created = self.queues.create(&self.name(queue)).await?;
        Ok(created || self.fault == Fault::CreatesAgain)
    }

    async fn list(&self) -> Result<Vec<QueueStatus>, StoreError> {
        self.queues.list().await
    }

    async fn purge(&self, queue: &Address) -> Result<u64, StoreError> {
        let there = self.queues.browse(queue, 0, NonZeroUsize::MAX).await?.len() as u64;
        let purged = self.queues.purge(queue).await?;
        Ok(if self.fault == Fault::CountsWhatItLeft { there } else { purged })
    }

    async fn browse(
        &self,
        queue: &Address,
        after: u64,
        limit: NonZeroUsize,
    ) -> Result<Vec<QueuedMessage>, StoreError> {
        let after = if self.fault == Fault::BrowsesFromThePosition { after.saturating_sub(1) } else { after };
        let seen = self.queues.browse(queue, after, limit).await?;
        if self.fault == Fault::BrowsingTakes {
            self.queues.purge(queue).await?;
        }
        Ok(seen)
    }

    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(self.clone())
    }

    fn max_message_bytes(&self) -> usize {
        match self.fault {
            Fault::TakesWhatIsTooLarge => SAID_LIMIT,
            _ => self.queues.max_message_bytes(),
        }
    }

    async fn receiver(&self, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError> {
        let receiver = self.queues.receiver(&self.name(queue)).await?;
        Ok(Arc::new(FaultyReceiver {
            receiver,
            queues: self.queues.clone(),
            fault: self.fault,
            handle: Arc::downgrade(&self.handle),
        }))
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
            Fault::StopsAtAFailure => stop_at_a_failure(&*dispatcher, messages).await,
            Fault::ReversesBatches => {
                let reversed: Vec<_> = messages.iter().rev().cloned().collect();
                dispatcher.dispatch(&reversed, within).await.into_iter().rev().collect()
            }
            Fault::TruncatesBodies => {
                let mut cut = messages.to_vec();
                cut.iter_mut()
                    .for_each(|message| message.body.truncate(message.body.len().saturating_sub(1)));
                dispatcher.dispatch(&cut, within).await
            }
            Fault::RejectsTheWholeBatch
                if messages.iter().any(|message| message.size() > self.max_message_bytes()) =>
            {
                let rejected = |_| Err(DispatchError::new(DispatchErrorKind::Rejected, "one is too large"));
                messages.iter().map(rejected).collect()
            }
            Fault::SendsAgainWhenDropped => {
                let again = Again { dispatcher: &*dispatcher, messages };
                let outcomes = dispatcher.dispatch(messages, within).await;
                yield_now().await;
                std::mem::forget(again);
                outcomes
            }
            Fault::ShowsTheBodyInErrors => {
                let outcomes = dispatcher.dispatch(messages, within).await;
                let shown = |(outcome, message): (Result<(), DispatchError>, &OutgoingMessage)| {
                    outcome.map_err(|error| {
                        let body = String::from_utf8_lossy(&message.body);
                        DispatchError::new(error.kind(), format!("cannot send {body}"))
                    })
                };
                outcomes.into_iter().zip(messages).map(shown).collect()
            }
            Fault::FoldsNames => {
                let mut folded = messages.to_vec();
                folded.iter_mut().for_each(|message| message.destination = self.name(&message.destination));
                dispatcher.dispatch(&folded, within).await
            }
            _ => dispatcher.dispatch(messages, within).await,
        }
    }
}

async fn stop_at_a_failure(
    dispatcher: &dyn Dispatcher,
    messages: &[OutgoingMessage],
) -> Vec<Result<(), DispatchError>> {
    let mut outcomes = Vec::new();
    for message in messages {
        match outcomes.last() {
            Some(Err::<(), DispatchError>(error)) => {
                outcomes.push(Err(DispatchError::new(error.kind(), "stopped")));
            }
            _ => outcomes.extend(dispatcher.dispatch(slice::from_ref(message), None).await),
        }
    }
    outcomes
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.dispatcher.dispatch(self.messages, None).now_or_never().unwrap();
    }
}
