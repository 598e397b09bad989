//! The reference backend: everything in memory, every contract kept in the plainest way.

mod claim;
mod place;
mod queues;
mod receiver;
mod rows;
mod scheduled;
mod store;
mod watch;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    Backend, Capabilities, ClaimKind, Clock, DelayedMessageStore, EndpointName, Operation, StoreError,
    StoreErrorKind, SystemClock, TransactionMode,
};

pub use queues::MemoryQueues;

use place::Place;
use store::MemoryStore;

/// A backend that keeps everything in memory: for tests, for simulations, and to read.
///
/// Clones share their content: a clone is another handle on the same place. What it holds is gone with the
/// last of them. It supports every mode, [`TransactionScope`](TransactionMode::TransactionScope) with the
/// [queues](Self::queues) of the same place.
///
/// It takes the time from its [`Clock`] alone and has no order but that of its keys, so that the same calls
/// under the same clock have the same answers.
///
/// ```
/// use std::{num::NonZeroUsize, time::Duration};
/// use postdate_core::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = TokioClock::starting_at("2026-12-24T18:00:00Z".parse()?);
/// let memory = Memory::builder().clock(clock).build();
/// let orders = EndpointName::new("orders")?;
/// memory.set_up(&orders).await?;
/// let store = memory.open(&orders, TransactionMode::ReceiveOnly).await?;
///
/// let due = Due::after(Duration::from_secs(1800));
/// store.store_one(Message::new("invoice 42").to(Address::new("billing")?, due)).await?;
///
/// assert!(store.fetch(NonZeroUsize::MIN).await?.messages.is_empty());
/// tokio::time::sleep(Duration::from_secs(1800)).await;
/// assert_eq!(store.fetch(NonZeroUsize::MIN).await?.messages[0].message.body, "invoice 42");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    place: Arc<Place>,
}

/// Settings of a [`Memory`].
#[derive(Clone, Debug)]
pub struct MemoryBuilder {
    clock: Arc<dyn Clock>,
    lease: Duration,
    claims: fn(Duration) -> ClaimKind,
}

impl Memory {
    /// An empty one on the system's clock, with leases of 30 seconds.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// One with other settings.
    pub fn builder() -> MemoryBuilder {
        let lease = Duration::from_secs(30);
        MemoryBuilder { clock: Arc::new(SystemClock), lease, claims: ClaimKind::Lease }
    }

    /// The queues in the same place.
    pub fn queues(&self) -> MemoryQueues {
        MemoryQueues::new(Arc::clone(&self.place))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBuilder {
    /// Where the time comes from.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How long a claim holds unless it is renewed, for delayed messages and in queues.
    #[must_use]
    pub fn lease(mut self, term: Duration) -> Self {
        self.lease = term;
        self
    }

    /// Has claims on delayed messages behave as [transactions](ClaimKind::Transaction) on a server, which ends them when
    /// they were not renewed for the term of a lease.
    #[must_use]
    pub fn claims_in_transactions(mut self) -> Self {
        self.claims = |_| ClaimKind::Transaction;
        self
    }

    /// An empty backend with these settings.
    pub fn build(self) -> Memory {
        Memory { place: Arc::new(Place::new(self.clock, (self.claims)(self.lease), self.lease)) }
    }
}

#[async_trait]
impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(&TransactionMode::ALL, self.place.claims())
            .resolution(place::RESOLUTION)
            .max_message_bytes(place::MAX_MESSAGE_BYTES)
            .not_durable()
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.place.lock().endpoints.entry(endpoint.clone()).or_default();
        Ok(())
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let mut contents = self.place.lock();
        let Some(rows) = contents.endpoints.get_mut(endpoint) else {
            let detail = format!("endpoint {endpoint:?} is not set up here; call set_up first");
            return Err(place::error(StoreErrorKind::NotSetUp, Operation::Open, detail));
        };
        let watcher = rows.watchers.join();
        Ok(Arc::new(MemoryStore::new(Arc::clone(&self.place), endpoint.clone(), mode, watcher)))
    }
}

#[cfg(test)]
mod tests;
