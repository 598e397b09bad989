//! Fetching, and when to come back.

use std::{num::NonZeroUsize, time::Duration};

use futures::FutureExt as _;
use jiff::Timestamp;
use postdate_core::{
    Address, DueBatch, Failure, FetchDue, Filter, ListQuery, MessageId, MessageState, NextDue, Operation,
    StoreError, StoreErrorKind,
};
use tokio::task::yield_now;

use super::{Fault, claim::FaultyClaim, store::FaultyStore};

impl FaultyStore {
    pub(super) async fn fetch(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        if self.fault == Fault::NeverHandsOver && !self.is_first {
            return self.store.fetch_due(FetchDue { limit: request.limit, except: &[billing()] }).await;
        }
        let limit = match self.fault {
            Fault::BringsTooMany => request.limit.saturating_add(1),
            Fault::BringsOneAtATime => NonZeroUsize::MIN,
            _ => request.limit,
        };
        let except = if self.fault == Fault::IgnoresExceptions { &[] } else { request.except };
        if self.fault == Fault::ReadsOnePage && self.first_page_is_held().await? {
            return self.store.fetch_due(FetchDue { limit, except: &[billing()] }).await;
        }
        let mut batch = self.store.fetch_due(FetchDue { limit, except }).await?;
        while self.put_aside_unreadable_rows(&mut batch).await? && batch.messages.is_empty() {
            batch = self.store.fetch_due(FetchDue { limit, except }).await?;
        }
        self.spoil(&mut batch).await?;
        let ids = ids_of(&batch);
        let claim = Box::new(FaultyClaim::new(batch.claim, ids, self.fault, self.holders.clone()));
        Ok(DueBatch { claim, ..batch })
    }

    async fn spoil(&self, batch: &mut DueBatch) -> Result<(), StoreError> {
        match self.fault {
            Fault::LosesTheOrder => batch.messages.reverse(),
            Fault::HidesContention => batch.contended = false,
            Fault::ForgetsClaims => batch.claim.release(&ids_of(batch)).await?,
            Fault::KeepsAWatermark => {
                let last = batch.messages.last().map(|due| due.due);
                let mut watermark = self.watermark.lock().expect("nobody panics here");
                batch.messages.retain(|due| due.due >= *watermark);
                *watermark = last.unwrap_or(*watermark).max(*watermark);
            }
            Fault::LosesWhatNobodyTook => {
                let ids = ids_of(batch);
                let mut guard = RemoveUnlessTaken { batch, ids, taken: false };
                yield_now().await;
                guard.taken = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Plays what a store does with rows that cannot be read. Whether there were any.
    async fn put_aside_unreadable_rows(&self, batch: &mut DueBatch) -> Result<bool, StoreError> {
        let is_unreadable = |id: &MessageId| self.meddlings.is_unreadable(&self.endpoint, id);
        let all = ids_of(batch);
        let mut bad: Vec<_> = all.iter().filter(|id| is_unreadable(id)).cloned().collect();
        if bad.is_empty() {
            return Ok(false);
        }
        match self.fault {
            Fault::StopsAtUnreadableRows => {
                let detail = "a row cannot be read";
                return Err(StoreError::new(StoreErrorKind::Corrupt, Operation::FetchDue, "faulty", detail));
            }
            Fault::PutsAsideWholeBatches => bad = all,
            Fault::LeavesUnreadableRowsDue => {
                batch.messages.retain(|due| !bad.contains(&due.message.id));
                return batch.claim.release(&bad).await.map(|()| false);
            }
            _ => {}
        }
        batch.messages.retain(|due| !bad.contains(&due.message.id));
        let put_aside =
            |id| Failure { id, retry_after: Duration::MAX, error: "it cannot be read".to_owned() };
        batch.claim.increment_failure_count(&bad.into_iter().map(put_aside).collect::<Vec<_>>()).await?;
        Ok(true)
    }

    async fn first_page_is_held(&self) -> Result<bool, StoreError> {
        const PAGE: NonZeroUsize = NonZeroUsize::new(1_000).expect("it is not zero");
        let page = self.store.list(&ListQuery::new(Filter::default(), PAGE)).await?;
        let is_held = page.messages.iter().all(|line| line.state == MessageState::InFlight);
        Ok(is_held && page.next.is_some())
    }

    pub(super) async fn next(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        let mut next = self.store.next_due(except).await?;
        next.due = self.unless_put_aside(next.due);
        match self.fault {
            Fault::NextDueCountsHeld => {
                let all = self.store.list(&ListQuery::new(Filter::default(), NonZeroUsize::MIN)).await?;
                next.due = all.messages.first().map(|line| line.next_attempt);
            }
            Fault::AsksToComeBackAtOnce => next.due = Some(next.now),
            Fault::AsksToComeBackLate => {
                next.due = next.due.map(|due| due.saturating_add(Duration::from_secs(2)).unwrap_or(due));
            }
            _ => {}
        }
        Ok(next)
    }

    /// Rows that were put aside are never due.
    pub(super) fn unless_put_aside(&self, due: Option<Timestamp>) -> Option<Timestamp> {
        due.filter(|due| *due < Timestamp::MAX || self.meddlings.lock().unreadable.is_empty())
    }
}

/// Removes messages that a caller asked for and did not wait for.
struct RemoveUnlessTaken<'a> {
    batch: &'a mut DueBatch,
    ids: Vec<MessageId>,
    taken: bool,
}

impl Drop for RemoveUnlessTaken<'_> {
    fn drop(&mut self) {
        if !self.taken {
            let removed = self.batch.claim.remove(&self.ids).now_or_never();
            assert!(removed.is_some_and(|removed| removed.is_ok()), "memory removes at once");
        }
    }
}

/// Where the messages of checks go: nothing is fetched without them.
fn billing() -> Address {
    Address::new("billing").expect("the text is an address")
}

fn ids_of(batch: &DueBatch) -> Vec<MessageId> {
    batch.messages.iter().map(|due| due.message.id.clone()).collect()
}
