//! One call of a store or of a claim.

use std::sync::Arc;

use postdate_core::{
    Claim, DelayedMessageStore, DueBatch, FetchDue, Filter, ListQuery, ScheduledSummary, StoreError,
};

use super::super::{
    event::{Batch, ClaimNumber, Event},
    history::Request,
};
use crate::make::limit;

/// A claim that was neither committed nor dropped.
pub(super) struct Open {
    pub(super) number: ClaimNumber,
    pub(super) seat: usize,
    pub(super) claim: Box<dyn Claim>,
}

/// Where a call goes.
pub(super) enum Target {
    /// To the store on this handle; what it fetches is held by the claim of this number.
    Store {
        store: Arc<dyn DelayedMessageStore>,
        handle: u64,
        number: ClaimNumber,
    },
    Claim(Open),
}

pub(super) struct Call {
    pub(super) seat: usize,
    pub(super) endpoint: usize,
    pub(super) target: Target,
    pub(super) request: Request,
}

pub(super) struct Done {
    pub(super) endpoint: usize,
    pub(super) event: Event,
    /// The claim that was taken, or that was called and is still there.
    pub(super) open: Option<Open>,
}

impl Call {
    pub(super) async fn make(self) -> Done {
        let Self { seat, endpoint, target, request } = self;
        let (event, open) = match target {
            Target::Store { store, handle, number } => {
                call_store(&*store, handle, number, seat, request).await
            }
            Target::Claim(open) => call_claim(open, request).await,
        };
        Done { endpoint, event, open }
    }
}

async fn call_store(
    store: &dyn DelayedMessageStore,
    handle: u64,
    number: ClaimNumber,
    seat: usize,
    request: Request,
) -> (Event, Option<Open>) {
    let event = match request {
        Request::Store(messages) => {
            let answer = store.store(&messages).await.map_err(Into::into);
            Event::Stored { messages, answer }
        }
        Request::Fetch { limit: most, except } => {
            let fetched = store.fetch_due(FetchDue { limit: limit(most), except: &except }).await;
            let (answer, open) = match fetched {
                Ok(DueBatch { messages, claim, now, contended }) => {
                    (Ok(Batch { messages, now, contended }), Some(Open { number, seat, claim }))
                }
                Err(error) => (Err(error.into()), None),
            };
            return (Event::Fetched { claim: number, handle, limit: most, except, answer }, open);
        }
        Request::NextDue { except } => {
            let answer = store.next_due(&except).await.map_err(Into::into);
            Event::NextDue { except, answer }
        }
        Request::Look(id) => {
            let answer = store.get(&id).await.map_err(Into::into);
            Event::Looked { id, answer }
        }
        Request::List { filter, page } => {
            let answer = list(store, filter.clone(), page).await.map_err(Into::into);
            Event::Listed { filter, answer }
        }
        Request::Cancel(ids) => {
            let answer = store.cancel(&ids).await.map_err(Into::into);
            Event::Cancelled { ids, answer }
        }
        Request::Reschedule(id, due) => {
            let answer = store.reschedule(&id, due).await.map_err(Into::into);
            Event::Rescheduled { id, due, answer }
        }
        // What only a claim can be asked is not asked of a store.
        Request::Count
        | Request::Remove(_)
        | Request::Fail(_)
        | Request::Release(_)
        | Request::Renew
        | Request::Commit => Event::Counted { answer: store.stats().await.map_err(Into::into) },
    };
    (event, None)
}

async fn call_claim(mut open: Open, request: Request) -> (Event, Option<Open>) {
    let (number, claim) = (open.number, &mut open.claim);
    let event = match request {
        Request::Remove(ids) => {
            let answer = claim.remove(&ids).await.map_err(Into::into);
            Event::Removed { claim: number, ids, answer }
        }
        Request::Fail(failures) => {
            let answer = claim.increment_failure_count(&failures).await.map_err(Into::into);
            Event::Failed { claim: number, failures, answer }
        }
        Request::Release(ids) => {
            let answer = claim.release(&ids).await.map_err(Into::into);
            Event::Released { claim: number, ids, answer }
        }
        Request::Commit => {
            let answer = open.claim.commit().await.map_err(Into::into);
            return (Event::Committed { claim: number, answer }, None);
        }
        _ => Event::Renewed { claim: number, answer: claim.renew().await.map_err(Into::into) },
    };
    (event, Some(open))
}

/// All pages of a listing.
async fn list(
    store: &dyn DelayedMessageStore,
    filter: Filter,
    page: usize,
) -> Result<Vec<ScheduledSummary>, StoreError> {
    let mut query = ListQuery::new(filter, limit(page));
    let mut lines = Vec::new();
    // Few messages are there: a listing that does not end soon shows the same again.
    while lines.len() < 100 {
        let listing = store.list(&query).await?;
        lines.extend(listing.messages);
        query.after = listing.next;
        if query.after.is_none() {
            break;
        }
    }
    Ok(lines)
}
