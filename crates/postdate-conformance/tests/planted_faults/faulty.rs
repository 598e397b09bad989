//! The reference backend with one fault.

use std::{num::NonZeroUsize, sync::Arc, time::Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, Backend, Cancellation, Capabilities, Claim, DelayedMessage, DelayedMessageStore, Due, DueBatch,
    EndpointName, Enlistment, Failure, FetchDue, Filter, ListQuery, Listing, Memory, MessageId, NextDue,
    Rescheduling, ScheduledMessage, ScheduledMessages, Stats, StoreError, StoreErrorKind, TransactionMode,
};

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
}

#[derive(Debug)]
pub(crate) struct FaultyBackend {
    pub(crate) memory: Memory,
    pub(crate) fault: Fault,
}

#[derive(Debug)]
struct FaultyStore {
    store: Arc<dyn DelayedMessageStore>,
    fault: Fault,
}

#[derive(Debug)]
struct FaultyClaim {
    claim: Box<dyn Claim>,
    fault: Fault,
}

impl FaultyBackend {
    fn endpoint(&self, endpoint: &EndpointName) -> EndpointName {
        match self.fault {
            Fault::FoldsEndpoints => EndpointName::new(endpoint.as_str().to_ascii_lowercase())
                .expect("what was a name is one in lower case"),
            _ => endpoint.clone(),
        }
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.memory.capabilities();
        if self.fault == Fault::AcceptsAnyMode {
            capabilities.modes = &[TransactionMode::ReceiveOnly];
        }
        capabilities
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.memory.set_up(&self.endpoint(endpoint)).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let store = self.memory.open(&self.endpoint(endpoint), mode).await?;
        Ok(Arc::new(FaultyStore { store, fault: self.fault }))
    }
}

#[async_trait]
impl DelayedMessageStore for FaultyStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        let mut messages = messages.to_vec();
        for DelayedMessage { message, due } in &mut messages {
            match (self.fault, &due) {
                (Fault::DeliversEarly, Due::After(delay)) => *due = Due::after(*delay / 2),
                (Fault::TruncatesBodies, _) => message.body.truncate(message.body.len().saturating_sub(1)),
                _ => {}
            }
        }
        if self.fault == Fault::StoresInPart {
            let mut stored = Vec::new();
            for message in &messages {
                stored.extend(self.store.store(std::slice::from_ref(message)).await?);
            }
            return Ok(stored);
        }
        match self.store.store(&messages).await {
            Err(error)
                if error.kind() == StoreErrorKind::Conflict && self.fault == Fault::KnowsNoConflict =>
            {
                Ok(vec![Timestamp::UNIX_EPOCH; messages.len()])
            }
            stored => stored,
        }
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        let except = if self.fault == Fault::IgnoresExceptions { &[] } else { request.except };
        let mut batch = self.store.fetch_due(FetchDue { except, ..request }).await?;
        match self.fault {
            Fault::LosesTheOrder => batch.messages.reverse(),
            Fault::ForgetsClaims => {
                let ids: Vec<_> = batch.messages.iter().map(|due| due.message.id.clone()).collect();
                batch.claim.release(&ids).await?;
            }
            _ => {}
        }
        let claim = Box::new(FaultyClaim { claim: batch.claim, fault: self.fault });
        Ok(DueBatch { claim, ..batch })
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        let mut next = self.store.next_due(except).await?;
        if self.fault == Fault::NextDueCountsHeld {
            let all = self.store.list(&ListQuery::new(Filter::default(), NonZeroUsize::MIN)).await?;
            next.due = all.messages.first().map(|line| line.next_attempt);
        }
        Ok(next)
    }

    async fn changed(&self) {
        self.store.changed().await;
    }
}

#[async_trait]
impl ScheduledMessages for FaultyStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.store.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.store.list(query).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        let answers = self.store.cancel(ids).await?;
        Ok(match self.fault {
            Fault::CancelLies => vec![Cancellation::Cancelled; ids.len()],
            _ => answers,
        })
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        self.store.reschedule(id, due).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        assert!(self.fault != Fault::Panics, "planted");
        self.store.stats().await
    }
}

#[async_trait]
impl Claim for FaultyClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        let answers = self.claim.remove(ids).await?;
        Ok(if self.fault == Fault::RemovesAlways { vec![true; ids.len()] } else { answers })
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        if self.fault == Fault::ForgetsFailures {
            let ids: Vec<_> = failures.iter().map(|failure| failure.id.clone()).collect();
            self.claim.release(&ids).await?;
            return Ok(vec![true; ids.len()]);
        }
        self.claim.increment_failure_count(failures).await
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        self.claim.release(ids).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        if self.fault == Fault::RenewsInVain { Ok(()) } else { self.claim.renew().await }
    }

    fn expires(&self) -> Option<Instant> {
        self.claim.expires()
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        self.claim.enlist()
    }

    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        self.claim.commit().await
    }
}
