//! Looking at delayed messages, cancelling and rescheduling them, from any process.

mod change;
mod listing;

use std::sync::Arc;

use async_trait::async_trait;
use postdate_core::{
    Cancellation, Due, ListQuery, Listing, MessageId, Operation, Rescheduling, ScheduledMessage,
    ScheduledMessages, Stats, StoreError,
};

use rusqlite::Connection;

use crate::{
    store::SqliteStore,
    time::floor_micros,
    writer::{Tx, Work},
};

#[async_trait]
impl ScheduledMessages for SqliteStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        let held = self.file.held(Operation::Query, &self.in_flight).await?;
        let (endpoint, id) = (self.endpoint, id.clone());
        let get = move |connection: &Connection| listing::get(connection, endpoint, &id, &held);
        self.file.read(Operation::Query, get).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        let held = self.file.held(Operation::Query, &self.in_flight).await?;
        let (endpoint, query) = (self.endpoint, query.clone());
        let list = move |connection: &Connection| listing::list(connection, endpoint, &query, &held);
        self.file.read(Operation::Query, list).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        let (endpoint, in_flight, ids) = (self.endpoint, Arc::clone(&self.in_flight), ids.to_vec());
        let cancel = move |tx: &mut Tx<'_>| change::cancel(tx, endpoint, &in_flight, &ids);
        self.file.write(Operation::Cancel, Work::Plain, cancel).await
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        let (endpoint, in_flight, id) = (self.endpoint, Arc::clone(&self.in_flight), id.clone());
        let reschedule = move |tx: &mut Tx<'_>| change::reschedule(tx, endpoint, &in_flight, &id, due);
        self.file.write(Operation::Reschedule, Work::Plain, reschedule).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        let held = self.file.held(Operation::Query, &self.in_flight).await?;
        let (endpoint, now) = (self.endpoint, self.file.now());
        let mut stats = self
            .file
            .read(Operation::Query, move |connection| {
                listing::stats(connection, endpoint, floor_micros(now), &held)
            })
            .await?;
        stats.now = now;
        Ok(stats)
    }
}
