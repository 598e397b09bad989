//! The lock on fetched messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    place::{self, Place},
    rows::Rows,
};
use crate::{
    Claim, EndpointName, Enlistment, Failure, MessageId, Operation, OutgoingMessage, StoreError,
    StoreErrorKind, TransactionMode, round_up,
};

/// The identity of a claim, and where what it holds is.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) place: Arc<Place>,
    pub(super) endpoint: EndpointName,
    pub(super) claim: u64,
}

#[derive(Debug)]
pub(super) struct MemoryClaim {
    lease: Lease,
    /// What was fetched and neither settled for good nor given back.
    held: BTreeSet<MessageId>,
    expires: Option<Instant>,
    transaction: Option<MemoryTransaction>,
}

/// What a claim in [`TransactionScope`](TransactionMode::TransactionScope) mode does when it commits.
#[derive(Debug)]
pub(super) struct MemoryTransaction {
    pub(super) place: Arc<Place>,
    pub(super) sends: Vec<OutgoingMessage>,
    changes: BTreeMap<MessageId, Change>,
}

#[derive(Debug)]
enum Change {
    Remove,
    Fail { error: String, retry: Timestamp },
}

impl MemoryClaim {
    /// A claim on `held`, taken at `taken` or later.
    pub(super) fn new(
        lease: Lease,
        held: BTreeSet<MessageId>,
        taken: Instant,
        mode: TransactionMode,
    ) -> Self {
        let expires = taken.checked_add(lease.place.lease());
        let transaction = (mode == TransactionMode::TransactionScope).then(|| MemoryTransaction {
            place: Arc::clone(&lease.place),
            sends: Vec::new(),
            changes: BTreeMap::new(),
        });
        Self { lease, held, expires, transaction }
    }

    /// Makes the changes to what this claim still holds, at once or on commit; says which those are.
    fn change(&mut self, changes: impl Iterator<Item = (MessageId, Change)>, now: Timestamp) -> Vec<bool> {
        let mut contents = self.lease.place.lock();
        let rows = contents.rows(&self.lease.endpoint);
        let mut change = |(id, change): (MessageId, Change)| {
            if !rows.is_held_by(self.lease.claim, &id, now) {
                return false;
            }
            match &mut self.transaction {
                Some(transaction) if transaction.changes.contains_key(&id) => return false,
                Some(transaction) => {
                    transaction.changes.insert(id, change);
                }
                None => {
                    change.make(rows, &id);
                    self.held.remove(&id);
                }
            }
            true
        };
        changes.map(&mut change).collect()
    }

    fn lost(&self, operation: Operation) -> StoreError {
        let detail = format!("the lease of {:?} is over; fetch again", self.lease.place.lease());
        place::error(StoreErrorKind::ClaimLost, operation, detail)
    }
}

#[async_trait]
impl Claim for MemoryClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        let now = self.lease.place.now();
        Ok(self.change(ids.iter().map(|id| (id.clone(), Change::Remove)), now))
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let now = self.lease.place.now();
        let changes = failures.iter().map(|failure| {
            let retry = round_up(place::later(now, failure.retry_after), place::RESOLUTION);
            (failure.id.clone(), Change::Fail { error: failure.error.clone(), retry })
        });
        Ok(self.change(changes, now))
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        let mut contents = self.lease.place.lock();
        for id in ids {
            let settled = self.transaction.as_ref().is_some_and(|t| t.changes.contains_key(id));
            if !settled && self.held.remove(id) {
                contents.rows(&self.lease.endpoint).give_back(self.lease.claim, id);
            }
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let taken = tokio::time::Instant::now().into_std();
        let mut contents = self.lease.place.lock();
        let rows = contents.rows(&self.lease.endpoint);
        let now = self.lease.place.now();
        if !self.held.iter().all(|id| rows.is_held_by(self.lease.claim, id, now)) {
            return Err(self.lost(Operation::Renew));
        }
        for id in &self.held {
            rows.renew(id, self.lease.place.lease_end(now));
        }
        self.expires = taken.checked_add(self.lease.place.lease());
        Ok(())
    }

    fn expires(&self) -> Option<Instant> {
        self.expires
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        self.transaction.as_mut().map(|transaction| Enlistment::new(transaction))
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        // What is left gives itself back when the claim is dropped.
        let Some(transaction) = self.transaction.take() else { return Ok(()) };
        let mut contents = self.lease.place.lock();
        let now = self.lease.place.now();
        let rows = contents.rows(&self.lease.endpoint);
        if !self.held.iter().all(|id| rows.is_held_by(self.lease.claim, id, now)) {
            return Err(self.lost(Operation::Commit));
        }
        for (id, change) in transaction.changes {
            change.make(rows, &id);
        }
        for message in transaction.sends {
            contents.enqueue(message, now);
        }
        Ok(())
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        let mut contents = self.lease.place.lock();
        for id in &self.held {
            contents.rows(&self.lease.endpoint).give_back(self.lease.claim, id);
        }
    }
}

impl Change {
    fn make(self, rows: &mut Rows, id: &MessageId) {
        match self {
            Self::Remove => rows.remove(id),
            Self::Fail { error, retry } => rows.fail(id, &error, retry),
        }
    }
}
