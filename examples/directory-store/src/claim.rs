//! The lock on fetched messages: a number that they are held by, in the memory of the one process.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{Claim, DueMessage, Enlistment, Failure, MessageId, Operation, StoreError};

use crate::{
    endpoint::Endpoint,
    messages::{Messages, State},
};

#[derive(Debug)]
pub(crate) struct DirectoryClaim {
    endpoint: Arc<Endpoint>,
    number: u64,
    held: Vec<MessageId>,
}

impl DirectoryClaim {
    /// Holds messages that are free.
    pub(crate) fn new(endpoint: Arc<Endpoint>, messages: &mut Messages, due: &[DueMessage]) -> Self {
        let held: Vec<_> = due.iter().map(|due| due.message.id.clone()).collect();
        Self { endpoint, number: messages.hold(held.iter()), held }
    }
}

#[async_trait]
impl Claim for DirectoryClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        let (ids, number) = (ids.to_vec(), self.number);
        let remove =
            move |messages: &mut Messages| messages.remove(&ids, |state| state == State::Held(number));
        self.endpoint.run(Operation::Remove, remove).await
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let (failures, number) = (failures.to_vec(), self.number);
        let count = move |messages: &mut Messages| messages.fail(number, &failures, Timestamp::now());
        self.endpoint.run(Operation::IncrementFailureCount, count).await
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        let (ids, number) = (ids.to_vec(), self.number);
        let release = move |messages: &mut Messages| {
            messages.give_back(number, ids.iter());
            Ok(())
        };
        self.endpoint.run(Operation::Release, release).await
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// It ends with the process, and with it all that could act on it.
    fn expires(&self) -> Option<Instant> {
        None
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        None
    }

    /// Everything is permanent already. What is left gives itself back when the claim is dropped, which is now.
    async fn commit(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Drop for DirectoryClaim {
    fn drop(&mut self) {
        self.endpoint.lock().give_back(self.number, self.held.iter());
    }
}
