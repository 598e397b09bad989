//! What a check is given: a place of its own, and handles on it.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use postdate_core::{
    Address, Backend, Capabilities, ClaimKind, DelayedMessageStore, EndpointName, OutgoingMessage, Queues,
    Receiver, TransactionMode,
};

use crate::{Place, harness::Need, make, suite::Subject};

/// Greater messages than this are not tried: a check is not to exhaust the machine.
pub(crate) const GREATEST: usize = 64 << 20;

#[derive(Clone)]
pub(crate) struct Bench {
    subject: Subject,
    place: Arc<Place>,
    capabilities: Option<Capabilities>,
}

impl Bench {
    pub(crate) async fn new(subject: Subject) -> Result<Self> {
        let place = Arc::new(Place::new()?);
        let capabilities = match &subject.stores {
            Some(open) => Some(open(&place).await?.capabilities()),
            None => None,
        };
        Ok(Self { subject, place, capabilities })
    }

    /// Another bench, in another place.
    pub(crate) async fn elsewhere(&self) -> Result<Self> {
        Self::new(self.subject.clone()).await
    }

    pub(crate) fn has(&self, need: Need) -> bool {
        match need {
            Need::Leases => self.lease_term().is_some(),
            Need::Durability => self.capabilities.is_none_or(|can| can.durable),
            Need::SharedTransactions => {
                self.subject.queues.is_some()
                    && self.capabilities.is_some_and(|can| can.supports(TransactionMode::TransactionScope))
            }
            Need::SizeLimit => self.capabilities.is_some_and(|can| can.max_message_bytes < GREATEST),
            Need::WakeUps => self.subject.wakes,
        }
    }

    pub(crate) fn lease_term(&self) -> Option<Duration> {
        match self.capabilities?.claim {
            ClaimKind::Lease(term) => Some(term),
            _ => None,
        }
    }

    pub(crate) fn capabilities(&self) -> Result<Capabilities> {
        self.capabilities.context("this suite has no stores")
    }

    /// A new handle on the place, nothing set up.
    pub(crate) async fn backend(&self) -> Result<Arc<dyn Backend>> {
        let open = self.subject.stores.as_ref().context("this suite has no stores")?;
        open(&self.place).await.context("a handle on the place could not be opened")
    }

    /// A new handle, open for the usual endpoint in the usual mode.
    pub(crate) async fn store(&self) -> Result<Arc<dyn DelayedMessageStore>> {
        self.store_for("conformance").await
    }

    pub(crate) async fn store_for(&self, endpoint: &str) -> Result<Arc<dyn DelayedMessageStore>> {
        let modes = self.capabilities()?.modes;
        let usual = modes.iter().find(|mode| **mode == TransactionMode::ReceiveOnly).or(modes.first());
        self.open(endpoint, *usual.context("the store supports no mode at all")?).await
    }

    pub(crate) async fn store_in(&self, mode: TransactionMode) -> Result<Arc<dyn DelayedMessageStore>> {
        self.open("conformance", mode).await
    }

    async fn open(&self, endpoint: &str, mode: TransactionMode) -> Result<Arc<dyn DelayedMessageStore>> {
        let endpoint = EndpointName::new(endpoint)?;
        let backend = self.backend().await?;
        backend.set_up(&endpoint).await?;
        Ok(backend.open(&endpoint, mode).await?)
    }

    /// A new handle on the queues of the place.
    pub(crate) async fn queues(&self) -> Result<Arc<dyn Queues>> {
        let open = self.subject.queues.as_ref().context("this suite has no queues")?;
        open(&self.place).await.context("a handle on the queues could not be opened")
    }

    /// A new handle on the queues, with the usual queue.
    pub(crate) async fn queues_with(&self, queue: &Address) -> Result<Arc<dyn Queues>> {
        let queues = self.queues().await?;
        queues.create(queue).await?;
        Ok(queues)
    }

    /// The usual queue with these messages in it, and a receiver of it.
    pub(crate) async fn filled(
        &self,
        messages: &[OutgoingMessage],
    ) -> Result<(Arc<dyn Queues>, Arc<dyn Receiver>)> {
        let queues = self.queues_with(&make::billing()).await?;
        for sent in queues.dispatcher().dispatch(messages, None).await {
            sent?;
        }
        let receiver = queues.receiver(&make::billing()).await?;
        Ok((queues, receiver))
    }
}
