//! What a check is given: a place of its own, and handles on it.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use postdate_core::{
    Backend, Capabilities, ClaimKind, DelayedMessageStore, EndpointName, OutgoingMessage, Queues, Receiver,
    TransactionMode,
};

use crate::{
    Meddled, Meddling, Place, drive, harness::Need, make, meddling::Unmet, place::Places, suite::Subject,
};

/// Greater messages than this are not tried: a check is not to exhaust the machine.
pub(crate) const GREATEST: usize = 64 << 20;

#[derive(Clone)]
pub(crate) struct Bench {
    subject: Subject,
    places: Places,
    place: Arc<Place>,
    capabilities: Option<Capabilities>,
}

impl Bench {
    /// A bench in a new place, one of those that are removed after the check.
    pub(crate) async fn new(subject: Subject, places: Places) -> Result<Self> {
        let place = places.another()?;
        let capabilities = match &subject.stores {
            Some(open) => Some(open(&place).await?.capabilities()),
            None => None,
        };
        Ok(Self { subject, places, place, capabilities })
    }

    /// Another bench, in another place.
    pub(crate) async fn elsewhere(&self) -> Result<Self> {
        Self::new(self.subject.clone(), self.places.clone()).await
    }

    pub(crate) async fn has(&self, need: Need) -> Result<bool> {
        Ok(match need {
            Need::Leases => self.lease_term().is_some(),
            Need::Durability => self.capabilities.is_none_or(|can| can.durable),
            Need::SharedTransactions => {
                self.subject.queues.is_some()
                    && self.capabilities.is_some_and(|can| can.supports(TransactionMode::TransactionScope))
            }
            Need::SizeLimit => self.capabilities.is_some_and(|can| can.max_message_bytes < GREATEST),
            Need::QueueSizeLimit => self.queues().await?.max_message_bytes() < GREATEST,
            Need::WakeUps => self.subject.wakes,
        })
    }

    pub(crate) fn lease_term(&self) -> Option<Duration> {
        match self.capabilities?.claim {
            ClaimKind::Lease(term) => Some(term),
            _ => None,
        }
    }

    /// Whether each claim that is held has a connection to itself, of which there are only so many.
    pub(crate) fn claims_have_connections(&self) -> bool {
        self.capabilities.is_some_and(|can| can.claim == ClaimKind::Transaction)
    }

    /// The command that repeats a check, but for the check's name.
    pub(crate) fn repeat(&self) -> Arc<str> {
        Arc::clone(&self.subject.repeat)
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
        self.store_in(self.usual_mode()?).await
    }

    pub(crate) async fn store_for(&self, endpoint: &str) -> Result<Arc<dyn DelayedMessageStore>> {
        self.open(&EndpointName::new(endpoint)?, self.usual_mode()?).await
    }

    pub(crate) fn usual_mode(&self) -> Result<TransactionMode> {
        let modes = self.capabilities()?.modes;
        let usual = modes.iter().find(|mode| **mode == TransactionMode::ReceiveOnly).or(modes.first());
        usual.copied().context("the store supports no mode at all")
    }

    pub(crate) async fn store_in(&self, mode: TransactionMode) -> Result<Arc<dyn DelayedMessageStore>> {
        self.open(&make::endpoint(), mode).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>> {
        let backend = self.backend().await?;
        backend.set_up(endpoint).await?;
        Ok(backend.open(endpoint, mode).await?)
    }

    /// Has done what the store itself cannot be asked for; where that cannot be, the check does not apply.
    pub(crate) async fn meddle(&self, meddling: Meddling) -> Result<()> {
        let what = meddling.to_string();
        let meddled = match &self.subject.meddle {
            Some(meddle) => meddle(&self.place, meddling).await.map_err(|error| anyhow!(error))?,
            None => Meddled::Impossible("the suite was not told how to bring that about"),
        };
        match meddled {
            Meddled::Done => Ok(()),
            Meddled::Impossible(why) => Err(Unmet(format!("needs {what}: {why}")).into()),
        }
    }

    /// The check does not apply to what lacks this.
    pub(crate) fn unmet(&self, why: &str) -> Result<()> {
        Err(Unmet(why.to_owned()).into())
    }

    /// A new handle on the queues of the place.
    pub(crate) async fn queues(&self) -> Result<Arc<dyn Queues>> {
        let open = self.subject.queues.as_ref().context("this suite has no queues")?;
        open(&self.place).await.context("a handle on the queues could not be opened")
    }

    /// A new handle on the queues, with the usual queue.
    pub(crate) async fn queues_with_billing(&self) -> Result<Arc<dyn Queues>> {
        let queues = self.queues().await?;
        queues.create(&make::billing()).await?;
        Ok(queues)
    }

    /// The usual queue with these messages in it, and a receiver of it.
    pub(crate) async fn filled(
        &self,
        messages: &[OutgoingMessage],
    ) -> Result<(Arc<dyn Queues>, Arc<dyn Receiver>)> {
        let queues = self.queues_with_billing().await?;
        drive::send(&*queues, messages).await?;
        let receiver = queues.receiver(&make::billing()).await?;
        Ok((queues, receiver))
    }
}
