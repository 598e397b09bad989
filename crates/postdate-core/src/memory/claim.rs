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
    Claim, ClaimKind, EndpointName, Enlistment, Failure, MessageId, Operation, OutgoingMessage, StoreError,
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
    takes_effect: TakesEffect,
    /// What takes effect later.
    changes: BTreeMap<MessageId, Change>,
    /// What is given back later.
    given_back: BTreeSet<MessageId>,
    transaction: Option<MemoryTransaction>,
}

/// What a claim in [`TransactionScope`](TransactionMode::TransactionScope) mode sends when it commits.
#[derive(Debug)]
pub(super) struct MemoryTransaction {
    pub(super) place: Arc<Place>,
    pub(super) sends: Vec<OutgoingMessage>,
}

#[derive(Debug)]
enum Change {
    Remove,
    Fail { error: String, retry: Timestamp },
}

/// When what a claim does is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakesEffect {
    /// Each call by itself.
    AtOnce,
    /// All together when the claim ends: at the latest when nothing is unsettled.
    AtTheEnd,
    /// All together when it is committed, and never if it is dropped.
    OnCommit,
}

impl MemoryClaim {
    /// A claim on `held`, taken at `taken` or later.
    pub(super) fn new(
        lease: Lease,
        held: BTreeSet<MessageId>,
        taken: Instant,
        mode: TransactionMode,
    ) -> Self {
        let is_scope = mode == TransactionMode::TransactionScope;
        let transaction =
            is_scope.then(|| MemoryTransaction { place: Arc::clone(&lease.place), sends: Vec::new() });
        let takes_effect = match lease.place.claims() {
            _ if is_scope => TakesEffect::OnCommit,
            ClaimKind::Transaction => TakesEffect::AtTheEnd,
            _ => TakesEffect::AtOnce,
        };
        let expires = taken.checked_add(lease.place.lease());
        let (changes, given_back) = Default::default();
        Self { lease, held, expires, takes_effect, changes, given_back, transaction }
    }

    /// Makes the changes to what this claim still holds, at once or later; says which those are.
    fn change(&mut self, changes: impl Iterator<Item = (MessageId, Change)>) -> Vec<bool> {
        let place = Arc::clone(&self.lease.place);
        let mut contents = place.lock();
        let (rows, now) = (contents.rows(&self.lease.endpoint), place.now());
        let mut change = |(id, change): (MessageId, Change)| {
            let is_open = self.is_unsettled(&id) && rows.is_held_by(self.lease.claim, &id, now);
            if is_open && self.takes_effect == TakesEffect::AtOnce {
                change.make(rows, &id);
                self.held.remove(&id);
            } else if is_open {
                self.changes.insert(id, change);
            }
            is_open
        };
        let done = changes.map(&mut change).collect();
        self.end_if_settled(rows, now);
        done
    }

    fn is_unsettled(&self, id: &MessageId) -> bool {
        !self.changes.contains_key(id) && !self.given_back.contains(id)
    }

    fn end_if_settled(&mut self, rows: &mut Rows, now: Timestamp) {
        let is_settled = !self.held.iter().any(|id| self.is_unsettled(id));
        if self.takes_effect == TakesEffect::AtTheEnd && is_settled && !self.is_lost(rows, now) {
            self.end(rows);
        }
    }

    /// Makes all changes and gives the rest back.
    fn end(&mut self, rows: &mut Rows) {
        for (id, change) in std::mem::take(&mut self.changes) {
            change.make(rows, &id);
            self.held.remove(&id);
        }
        for id in std::mem::take(&mut self.held) {
            rows.give_back(self.lease.claim, &id);
        }
    }

    fn is_lost(&self, rows: &Rows, now: Timestamp) -> bool {
        !self.held.iter().all(|id| rows.is_held_by(self.lease.claim, id, now))
    }

    fn lost(&self, operation: Operation) -> StoreError {
        let detail = format!("the lease of {:?} is over; fetch again", self.lease.place.lease());
        place::error(StoreErrorKind::ClaimLost, operation, detail)
    }
}

#[async_trait]
impl Claim for MemoryClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        Ok(self.change(ids.iter().map(|id| (id.clone(), Change::Remove))))
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let now = self.lease.place.now();
        let changes = failures.iter().map(|failure| {
            let retry = round_up(place::later(now, failure.retry_after), place::RESOLUTION);
            (failure.id.clone(), Change::Fail { error: failure.error.clone(), retry })
        });
        Ok(self.change(changes))
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        let place = Arc::clone(&self.lease.place);
        let mut contents = place.lock();
        let (rows, now) = (contents.rows(&self.lease.endpoint), place.now());
        for id in ids.iter().filter(|id| !self.changes.contains_key(*id)) {
            if place.claims() == ClaimKind::Transaction {
                self.given_back.extend(self.held.get(id).cloned());
            } else if self.held.remove(id) {
                rows.give_back(self.lease.claim, id);
            }
        }
        self.end_if_settled(rows, now);
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        let taken = tokio::time::Instant::now().into_std();
        let mut contents = self.lease.place.lock();
        let rows = contents.rows(&self.lease.endpoint);
        let now = self.lease.place.now();
        if self.is_lost(rows, now) {
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
        if self.takes_effect == TakesEffect::AtOnce {
            return Ok(());
        }
        let place = Arc::clone(&self.lease.place);
        let mut contents = place.lock();
        let (rows, now) = (contents.rows(&self.lease.endpoint), place.now());
        if self.is_lost(rows, now) {
            self.changes.clear();
            return Err(self.lost(Operation::Commit));
        }
        self.end(rows);
        for message in self.transaction.take().into_iter().flat_map(|transaction| transaction.sends) {
            contents.enqueue(message, now);
        }
        Ok(())
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        let place = Arc::clone(&self.lease.place);
        let mut contents = place.lock();
        let (rows, now) = (contents.rows(&self.lease.endpoint), place.now());
        if self.takes_effect == TakesEffect::OnCommit || self.is_lost(rows, now) {
            self.changes.clear();
        }
        self.end(rows);
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
