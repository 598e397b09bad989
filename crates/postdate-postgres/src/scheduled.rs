//! Looking at delayed messages, cancelling and rescheduling them, from any process.

mod change;
mod listing;

use async_trait::async_trait;
use postdate_core::{
    Cancellation, Due, ListQuery, Listing, MessageId, Operation, Rescheduling, ScheduledMessage,
    ScheduledMessages, Stats, StoreError,
};

use crate::store::PostgresStore;

#[async_trait]
impl ScheduledMessages for PostgresStore {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.shared.place.call(Operation::Query, listing::get(&self.shared, id)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.shared.place.call(Operation::Query, listing::list(&self.shared, query)).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        self.shared.place.call(Operation::Cancel, change::cancel(&self.shared, ids)).await
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        self.shared.place.call(Operation::Reschedule, change::reschedule(&self.shared, id, due)).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.place.call(Operation::Query, listing::stats(&self.shared)).await
    }
}
