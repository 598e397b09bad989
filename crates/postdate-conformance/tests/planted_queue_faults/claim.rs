//! A claim on received messages with one fault.

use std::{fmt, mem, slice, time::Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, MemoryQueues, MessageId, Operation, OutgoingMessage, QueuedMessage, Queues as _, ReceiveClaim,
    StoreError, StoreErrorKind,
};
use tokio::task::yield_now;

use crate::Fault;

pub(crate) struct FaultyClaim {
    /// None once it was dropped.
    pub(crate) claim: Option<Box<dyn ReceiveClaim>>,
    pub(crate) messages: Vec<QueuedMessage>,
    pub(crate) queues: MemoryQueues,
    pub(crate) fault: Fault,
    pub(crate) was_answered_false: bool,
}

impl FaultyClaim {
    fn claim(&mut self) -> &mut Box<dyn ReceiveClaim> {
        self.claim.as_mut().unwrap()
    }

    /// Copies of those messages that are named and were held.
    fn copies(&self, positions: &[u64], queue: &Address) -> Vec<OutgoingMessage> {
        let named = self.messages.iter().filter(|queued| positions.contains(&queued.position));
        named.map(|queued| OutgoingMessage { destination: queue.clone(), ..queued.message.clone() }).collect()
    }

    fn after(&mut self, answers: Vec<bool>) -> Vec<bool> {
        self.was_answered_false |= answers.contains(&false);
        answers
    }
}

#[async_trait]
impl ReceiveClaim for FaultyClaim {
    async fn complete(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let mut answers = Vec::new();
        if self.fault == Fault::CompletesOneByOne {
            for position in positions {
                answers.extend(self.claim().complete(slice::from_ref(position)).await?);
                yield_now().await;
            }
        } else {
            answers = self.claim().complete(positions).await?;
        }
        match self.fault {
            Fault::CompletesAnything => answers.fill(true),
            Fault::LosesTheRest => {
                let all: Vec<_> = self.messages.iter().map(|queued| queued.position).collect();
                self.claim().abandon(&all).await?;
            }
            _ => {}
        }
        Ok(self.after(answers))
    }

    async fn abandon(&mut self, positions: &[u64]) -> Result<Vec<bool>, StoreError> {
        let own = self.messages.first().map(|queued| queued.message.destination.clone());
        let answers = match own {
            Some(own) if self.fault == Fault::GivesBackToTheEnd => {
                self.claim().move_to(positions, &own).await?
            }
            _ => self.claim().abandon(positions).await?,
        };
        Ok(self.after(answers))
    }

    async fn move_to(&mut self, positions: &[u64], queue: &Address) -> Result<Vec<bool>, StoreError> {
        let answers = match self.fault {
            Fault::MovesOneByOne => {
                let mut answers = Vec::new();
                for position in positions {
                    answers.extend(self.claim().move_to(slice::from_ref(position), queue).await?);
                    yield_now().await;
                }
                answers
            }
            Fault::MovesUnderNewIds => {
                let copies = self.copies(positions, queue);
                let fresh =
                    copies.into_iter().map(|copy| OutgoingMessage { id: MessageId::generate(), ..copy });
                send(self.queues.clone(), fresh.collect()).await;
                self.claim().complete(positions).await?
            }
            Fault::MovesACopy => {
                send(self.queues.clone(), self.copies(positions, queue)).await;
                // As if each had been moved once.
                (0..positions.len()).map(|i| !positions[..i].contains(&positions[i])).collect()
            }
            _ => self.claim().move_to(positions, queue).await?,
        };
        Ok(self.after(answers))
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        if self.fault == Fault::TakesFalseForLost && self.was_answered_false {
            let lost = "planted: lost";
            return Err(StoreError::new(StoreErrorKind::ClaimLost, Operation::Renew, "faulty", lost));
        }
        if self.fault == Fault::RenewsInVain {
            return Ok(());
        }
        match self.claim().renew().await {
            Err(_) if self.fault == Fault::RenewsWhatIsLost => Ok(()),
            renewed => renewed,
        }
    }

    fn expires(&self) -> Option<Instant> {
        self.claim.as_ref().unwrap().expires()
    }

    fn received(&self) -> Option<Timestamp> {
        let received = self.claim.as_ref().unwrap().received();
        if self.fault == Fault::TellsWhenItWasSent {
            return self.messages.first().map(|queued| queued.enqueued);
        }
        received
    }
}

impl fmt::Debug for FaultyClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FaultyClaim");
        if self.fault == Fault::ShowsBodies {
            shown.field(
                "bodies",
                &self.messages.iter().map(|queued| &queued.message.body).collect::<Vec<_>>(),
            );
        }
        shown.finish_non_exhaustive()
    }
}

impl Drop for FaultyClaim {
    fn drop(&mut self) {
        if self.fault == Fault::KeepsWhenDropped {
            mem::forget(self.claim.take());
        }
    }
}

async fn send(queues: MemoryQueues, messages: Vec<OutgoingMessage>) {
    for sent in queues.dispatcher().dispatch(&messages, None).await {
        sent.unwrap();
    }
}
