//! Where messages go in a bench, and who waits for them.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use postdate_core::{
    DispatchError, Dispatcher, Enlistment, Event, MessageId, Observer, OutgoingMessage, StoreError,
};
use tokio::sync::Notify;

/// Takes every message, and no time.
#[derive(Debug)]
pub(crate) struct Nowhere;

#[async_trait]
impl Dispatcher for Nowhere {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        messages.iter().map(|_| Ok(())).collect()
    }
}

/// Remembers when each message arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Mutex<Vec<(MessageId, Timestamp)>>);

impl Arrivals {
    /// How late each of these arrived.
    ///
    /// # Errors
    /// When one did not arrive, or before its time.
    pub(crate) fn lateness(&self, sent: &[(MessageId, Timestamp)]) -> Result<Vec<SignedDuration>> {
        let arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let late = |(id, due): &(MessageId, Timestamp)| {
            let arrival = arrivals.iter().find(|(arrived, _)| arrived == id);
            let (_, arrival) = arrival.with_context(|| format!("{id} did not arrive"))?;
            let late = arrival.duration_since(*due);
            ensure!(!late.is_negative(), "{id} arrived early");
            Ok(late)
        };
        sent.iter().map(late).collect()
    }
}

#[async_trait]
impl Dispatcher for Arrivals {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        let now = Timestamp::now();
        let mut arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.extend(messages.iter().map(|message| (message.id.clone(), now)));
        messages.iter().map(|_| Ok(())).collect()
    }
}

/// Counts deliveries, and says when there were enough.
#[derive(Debug)]
pub(crate) struct Progress {
    delivered: AtomicUsize,
    enough: usize,
    done: Notify,
}

impl Progress {
    pub(crate) fn until(enough: usize) -> Self {
        Self { delivered: AtomicUsize::new(0), enough, done: Notify::new() }
    }

    /// Completes when enough was delivered.
    pub(crate) async fn done(&self) {
        self.done.notified().await;
    }

    pub(crate) fn delivered(&self) -> usize {
        self.delivered.load(Relaxed)
    }
}

impl Observer for Progress {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Dispatched { .. } = event
            && self.delivered.fetch_add(1, Relaxed) + 1 == self.enough
        {
            self.done.notify_one();
        }
    }
}
