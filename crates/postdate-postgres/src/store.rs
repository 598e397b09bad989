//! The delayed messages of one endpoint.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, DelayedMessage, DelayedMessageStore, DueBatch, FetchDue, NextDue, Operation, StoreError,
    TransactionMode,
    wake::{Topic, Wake},
};
use sqlx::Row;

use crate::{
    error::Result,
    fetch::{BATCH_BYTES, claim_due},
    place::Place,
    position::Position,
    sql::query,
    storer,
    time::PgInstant,
};

#[derive(Debug)]
pub(crate) struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
    wake: Arc<Wake>,
}

/// What a store shares with its claims.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) place: Arc<Place>,
    pub(crate) endpoint: i32,
    pub(crate) mode: TransactionMode,
    pub(crate) position: Position,
    /// The mean size of the messages that were fetched last, in bytes.
    mean_size: AtomicUsize,
}

impl PostgresStore {
    pub(crate) fn new(place: Arc<Place>, endpoint: i32, mode: TransactionMode) -> Self {
        let wake = place.wakes.join(Topic::Endpoint(endpoint.into()));
        let shared =
            Shared { place, endpoint, mode, position: Position::default(), mean_size: AtomicUsize::new(1) };
        Self { shared: Arc::new(shared), wake }
    }

    async fn earliest(&self, except: &[Address]) -> Result<NextDue> {
        let except: Vec<&str> = except.iter().map(Address::as_str).collect();
        let mut connection = self.shared.place.connections.lend().await?;
        let row = query(&self.shared.place.sql.next_due)
            .bind(self.shared.endpoint)
            .bind(except)
            .fetch_one(&mut *connection)
            .await?;
        connection.give_back();
        let (now, due): (PgInstant, Option<PgInstant>) =
            (row.try_get_unchecked(0)?, row.try_get_unchecked(1)?);
        Ok(NextDue { due: due.map(PgInstant::timestamp), now: now.timestamp() })
    }
}

impl Shared {
    /// As many messages as make a batch, if they are as large as the last ones.
    pub(crate) fn usual_limit(&self) -> usize {
        let batch = usize::try_from(BATCH_BYTES).unwrap_or(usize::MAX);
        (batch / self.mean_size.load(Ordering::Relaxed).max(1)).max(1)
    }

    /// So many messages had so many bytes.
    pub(crate) fn note_sizes(&self, count: usize, bytes: usize) {
        if let Some(mean) = bytes.checked_div(count) {
            self.mean_size.store(mean, Ordering::Relaxed);
        }
    }

    /// Something that was held is free again: whoever waits may want it.
    pub(crate) fn given_back(&self) {
        self.position.reset();
        self.place.freed(self.endpoint);
    }
}

#[async_trait]
impl DelayedMessageStore for PostgresStore {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let Shared { place, endpoint, position, .. } = &*self.shared;
        let stored = storer::store(place, *endpoint, messages).await;
        let stored = stored.map_err(|fault| place.error(fault, Operation::Store))?;
        stored.dues.iter().min().into_iter().for_each(|first| position.committed(*first));
        Ok(stored.dues.into_iter().map(PgInstant::timestamp).collect())
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        self.shared.place.call(Operation::FetchDue, claim_due(&self.shared, request)).await
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        // Whatever is committed while the answer is found is a reason to ask again.
        self.wake.set_interest(i64::MAX, except);
        let next = self.shared.place.call(Operation::NextDue, self.earliest(except)).await?;
        self.wake.set_interest(next.due.map_or(i64::MAX, |due| PgInstant::ceil(due).micros()), except);
        Ok(next)
    }

    async fn changed(&self) {
        self.shared.place.changed(&self.wake).await;
    }

    async fn flush(&self) {
        self.shared.place.notifier.flush().await;
    }
}
