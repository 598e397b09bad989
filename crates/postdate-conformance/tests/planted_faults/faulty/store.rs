//! Storing, looking and changing one's mind.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use postdate_core::{
    Address, Cancellation, DelayedMessage, DelayedMessageStore, Due, DueBatch, EncodedHeaders, EndpointName,
    FetchDue, ListQuery, Listing, MessageId, MessageState, NextDue, Operation, Rescheduling,
    ScheduledMessage, ScheduledMessages, Stats, StoreError, StoreErrorKind,
};
use tokio::task::yield_now;

use super::{Fault, claim::Holders, meddled::Meddlings};

pub(super) struct FaultyStore {
    pub(super) store: Arc<dyn DelayedMessageStore>,
    pub(super) endpoint: EndpointName,
    pub(super) fault: Fault,
    pub(super) meddlings: Meddlings,
    pub(super) watermark: Mutex<Timestamp>,
    pub(super) holders: Holders,
    /// Whether this was opened before all other handles.
    pub(super) is_first: bool,
    /// Whether the session of this handle is in another time zone.
    zoned: bool,
    last_body: Mutex<Bytes>,
}

impl FaultyStore {
    pub(super) fn new(
        store: Arc<dyn DelayedMessageStore>,
        endpoint: EndpointName,
        fault: Fault,
        meddlings: Meddlings,
    ) -> Self {
        let watermark = Mutex::new(Timestamp::MIN);
        let (is_first, zoned) = {
            let mut state = meddlings.lock();
            state.opened += 1;
            (state.opened == 1, state.zoned)
        };
        let (holders, last_body) = (Holders::default(), Mutex::default());
        Self { store, endpoint, fault, meddlings, watermark, holders, is_first, zoned, last_body }
    }

    fn alter(&self, DelayedMessage { message, due }: &mut DelayedMessage) {
        match (self.fault, &due) {
            (Fault::DeliversEarly, Due::After(delay)) => *due = Due::after(*delay / 2),
            (Fault::TurnsLongDelaysIntoNone, Due::After(delay))
                if i32::try_from(delay.as_millis()).is_err() =>
            {
                *due = Due::NOW;
            }
            (Fault::RoundsDown, Due::At(instant)) => {
                *due = Due::At(Timestamp::from_millisecond(instant.as_millisecond()).expect("it was one"));
            }
            (Fault::LosesTheRepeatedHour, Due::At(instant)) if self.zoned => {
                *due = Due::At(first_time_of_the_repeated_hour(*instant));
            }
            (Fault::TruncatesBodies, _) => message.body.truncate(message.body.len().saturating_sub(1)),
            (Fault::MakesTextOfHeaders, _) => {
                let text = String::from_utf8_lossy(message.headers.as_bytes()).into_owned();
                message.headers = EncodedHeaders::from_bytes(text);
            }
            _ => {}
        }
    }

    async fn store_one_by_one(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        let mut stored = Vec::new();
        for message in messages {
            stored.extend(self.store.store(std::slice::from_ref(message)).await?);
            if self.fault == Fault::StoresInSteps {
                yield_now().await;
            }
        }
        Ok(stored)
    }

    fn is_unreadable(&self, id: &MessageId) -> bool {
        self.meddlings.is_unreadable(&self.endpoint, id)
    }
}

/// Of the hour that New York had twice in a night of 2021 the first, as if read from a clock on the wall.
fn first_time_of_the_repeated_hour(instant: Timestamp) -> Timestamp {
    const HOUR: Duration = Duration::from_secs(3_600);
    let second: Timestamp = "2021-11-07T06:00:00Z".parse().expect("the text is a time");
    let end = second.checked_add(HOUR).expect("the time is not the last");
    if (second..end).contains(&instant) { instant.checked_sub(HOUR).unwrap_or(instant) } else { instant }
}

#[async_trait]
impl DelayedMessageStore for FaultyStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        let mut messages = messages.to_vec();
        messages.iter_mut().for_each(|message| self.alter(message));
        if let Some(last) = messages.last() {
            *self.last_body.lock().expect("nobody panics here") = last.message.body.clone();
        }
        if matches!(self.fault, Fault::StoresInPart | Fault::StoresInSteps) {
            return self.store_one_by_one(&messages).await;
        }
        match self.store.store(&messages).await {
            Err(error) if error.kind() == StoreErrorKind::Conflict => match self.fault {
                Fault::KnowsNoConflict => Ok(vec![Timestamp::UNIX_EPOCH; messages.len()]),
                Fault::TellsBodies => {
                    let detail = format!("there is another body than {:?}", messages[0].message.body);
                    Err(StoreError::new(error.kind(), Operation::Store, "faulty", detail))
                }
                _ => Err(error),
            },
            stored => stored,
        }
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        self.fetch(request).await
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        self.next(except).await
    }

    async fn changed(&self) {
        match self.fault {
            Fault::NeverWakes => std::future::pending().await,
            Fault::AlwaysWakes => {}
            _ => self.store.changed().await,
        }
    }
}

#[async_trait]
impl ScheduledMessages for FaultyStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.store.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        let mut query = query.clone();
        if self.fault == Fault::TakesPrefixesForPatterns {
            let literal = |prefix: &String| prefix.split(['%', '_']).next().unwrap_or_default().to_owned();
            query.filter.id_prefix = query.filter.id_prefix.as_ref().map(literal);
        }
        let mut page = self.store.list(&query).await?;
        match self.fault {
            Fault::SkipsLinesOfAList if page.next.is_some() => drop(page.messages.pop()),
            Fault::HidesUnreadableRows => page.messages.retain(|line| !self.is_unreadable(&line.id)),
            _ => {}
        }
        Ok(page)
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let seen = self.store.get(id).await?.map(|seen| seen.state);
            if matches!(self.fault, Fault::CancelsInSteps | Fault::CancelsWhatItSawFree) {
                yield_now().await;
            }
            let answer = self.store.cancel(std::slice::from_ref(id)).await?;
            answers.push(match (self.fault, seen, answer[0]) {
                (Fault::CancelsWhatItSawFree, Some(MessageState::Pending), Cancellation::InFlight)
                | (Fault::CancelLies, ..) => Cancellation::Cancelled,
                (.., answer) => answer,
            });
            self.meddlings.lock().unreadable.remove(&(self.endpoint.clone(), id.clone()));
        }
        Ok(answers)
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        self.store.reschedule(id, due).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        assert!(self.fault != Fault::Panics, "planted");
        let mut stats = self.store.stats().await?;
        stats.next_due = self.unless_put_aside(stats.next_due);
        Ok(stats)
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FaultyStore");
        if self.fault == Fault::ShowsBodies {
            shown.field("last_body", &self.last_body);
        }
        shown.finish_non_exhaustive()
    }
}
