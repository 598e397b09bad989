//! What a claim does with what it holds.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::FutureExt as _;
use postdate_core::{Claim, Enlistment, Failure, MessageId, Operation, StoreError, StoreErrorKind};
use tokio::task::yield_now;

use super::Fault;

/// A claim of the reference backend that several may use, for want of a fence.
type Shared = Arc<tokio::sync::Mutex<Option<Box<dyn Claim>>>>;

/// Which claim holds which message.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders(Arc<Mutex<BTreeMap<MessageId, Shared>>>);

#[derive(Debug)]
pub(super) struct FaultyClaim {
    claim: Option<Box<dyn Claim>>,
    shared: Shared,
    ids: Vec<MessageId>,
    fault: Fault,
    holders: Holders,
}

impl Holders {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MessageId, Shared>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes through whatever claim holds the message now.
    async fn remove(&self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        let mut answers = Vec::new();
        for id in ids {
            let holder = self.lock().get(id).cloned();
            match holder {
                Some(holder) => match &mut *holder.lock().await {
                    Some(claim) => answers.extend(claim.remove(std::slice::from_ref(id)).await?),
                    None => answers.push(false),
                },
                None => answers.push(false),
            }
        }
        Ok(answers)
    }
}

impl FaultyClaim {
    pub(super) fn new(claim: Box<dyn Claim>, ids: Vec<MessageId>, fault: Fault, holders: Holders) -> Self {
        let shared = Shared::default();
        if fault != Fault::KnowsNoFence {
            return Self { claim: Some(claim), shared, ids, fault, holders };
        }
        *shared.try_lock().expect("it is new") = Some(claim);
        for id in &ids {
            holders.lock().insert(id.clone(), Arc::clone(&shared));
        }
        Self { claim: None, shared, ids, fault, holders }
    }

    fn own(&mut self) -> &mut Box<dyn Claim> {
        self.claim.as_mut().expect("a claim is given away when it is committed")
    }
}

#[async_trait]
impl Claim for FaultyClaim {
    async fn remove(&mut self, ids: &[MessageId]) -> Result<Vec<bool>, StoreError> {
        match self.fault {
            Fault::RemovesAlways => self.own().remove(ids).await.map(|_| vec![true; ids.len()]),
            Fault::RemovesNothing => Ok(vec![true; ids.len()]),
            Fault::KnowsNoFence => self.holders.remove(ids).await,
            Fault::RemovesInSteps => {
                let mut answers = Vec::new();
                for id in ids {
                    answers.extend(self.own().remove(std::slice::from_ref(id)).await?);
                    yield_now().await;
                }
                Ok(answers)
            }
            // What was left for the commit is done in steps there.
            Fault::CommitsInSteps => {
                self.ids.retain(|id| ids.contains(id));
                Ok(vec![true; ids.len()])
            }
            _ => self.own().remove(ids).await,
        }
    }

    async fn increment_failure_count(&mut self, failures: &[Failure]) -> Result<Vec<bool>, StoreError> {
        let mut failures = failures.to_vec();
        match self.fault {
            Fault::ForgetsFailures => {
                let ids: Vec<_> = failures.iter().map(|failure| failure.id.clone()).collect();
                self.own().release(&ids).await?;
                return Ok(vec![true; ids.len()]);
            }
            Fault::CountsInSteps => {
                let mut answers = Vec::new();
                for failure in failures {
                    answers.extend(self.own().increment_failure_count(&[failure]).await?);
                    yield_now().await;
                }
                return Ok(answers);
            }
            Fault::KnowsNoFence => return Ok(vec![false; failures.len()]),
            Fault::ChokesOnNul if failures.iter().any(|failure| failure.error.contains('\0')) => {
                let detail = "a text with a NUL in it";
                let operation = Operation::IncrementFailureCount;
                return Err(StoreError::new(StoreErrorKind::Other, operation, "faulty", detail));
            }
            Fault::IgnoresRetryTimes => {
                failures.iter_mut().for_each(|failure| failure.retry_after = Duration::ZERO);
            }
            Fault::ForgetsErrors => failures.iter_mut().for_each(|failure| failure.error.clear()),
            _ => {}
        }
        self.own().increment_failure_count(&failures).await
    }

    async fn release(&mut self, ids: &[MessageId]) -> Result<(), StoreError> {
        match self.fault {
            Fault::CountsReleases => {
                let failures: Vec<_> = ids.iter().cloned().map(given_back).collect();
                self.own().increment_failure_count(&failures).await.map(drop)
            }
            Fault::GivesNothingBack => Ok(()),
            Fault::KnowsNoFence => match &mut *self.shared.lock().await {
                Some(claim) => claim.release(ids).await,
                None => Ok(()),
            },
            _ => self.own().release(ids).await,
        }
    }

    async fn renew(&mut self) -> Result<(), StoreError> {
        if matches!(self.fault, Fault::RenewsInVain | Fault::KnowsNoFence) {
            return Ok(());
        }
        self.own().renew().await
    }

    fn expires(&self) -> Option<Instant> {
        self.claim.as_ref().and_then(|claim| claim.expires())
    }

    fn enlist(&mut self) -> Option<Enlistment<'_>> {
        self.claim.as_mut().and_then(|claim| claim.enlist())
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StoreError> {
        if self.fault == Fault::CommitsInSteps {
            for id in self.ids.clone() {
                self.own().remove(std::slice::from_ref(&id)).await?;
                yield_now().await;
            }
        }
        match self.claim.take() {
            Some(claim) => claim.commit().await,
            None => Ok(()),
        }
    }
}

impl Drop for FaultyClaim {
    fn drop(&mut self) {
        let Some(mut claim) = self.claim.take() else { return };
        match self.fault {
            Fault::KeepsWhatIsDropped => std::mem::forget(claim),
            Fault::CountsDrops => {
                let failures: Vec<_> = self.ids.iter().cloned().map(given_back).collect();
                let counted = claim.increment_failure_count(&failures).now_or_never();
                assert!(counted.is_some_and(|counted| counted.is_ok()), "memory counts at once");
            }
            _ => {}
        }
    }
}

fn given_back(id: MessageId) -> Failure {
    Failure { id, retry_after: Duration::ZERO, error: "given back".to_owned() }
}
