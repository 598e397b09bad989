//! What a delivery costs that has nothing to do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate::{
    Address, Backend, Cancellation, Capabilities, DelayedDelivery, DelayedMessage, DelayedMessageStore, Due,
    DueBatch, EndpointName, FetchDue, ListQuery, Listing, Message, MessageId, NextDue, Queues, Rescheduling,
    ScheduledMessage, ScheduledMessages, Settings, Stats, StoreError, TransactionMode, sqlite::Sqlite,
};

use crate::scene::{Diary, Scene, eventually};

const LONGEST_WAIT: Duration = Duration::from_millis(500);
const WAITS: u32 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_delivery_calls_its_store_at_most_twice_in_each_longest_wait() {
    let scene = Scene::new();
    let sqlite = scene.open_with(&["error", "billing"]).await;
    let (calls, diary) = (Arc::new(AtomicU32::new(0)), Arc::new(Diary::default()));
    let mut settings = Settings::default();
    settings.longest_wait = LONGEST_WAIT;
    let delivery = DelayedDelivery::builder("orders")
        .store(Counting { inner: sqlite.clone(), calls: Arc::clone(&calls) })
        .dispatcher(sqlite.queues().dispatcher())
        .settings(settings)
        .observer(diary.clone())
        .start()
        .await
        .unwrap();
    let far = Due::after(Duration::from_secs(86_400));
    delivery.send("billing", Message::new("tomorrow"), far).await.unwrap();
    delivery.send("billing", Message::new("now"), Due::NOW).await.unwrap();
    eventually("delivery", async || diary.delivered("billing") == 1).await;
    let at_rest = async || {
        let before = calls.load(Relaxed);
        tokio::time::sleep(LONGEST_WAIT / 5).await;
        calls.load(Relaxed) == before
    };
    eventually("a rest", at_rest).await;

    let before = calls.load(Relaxed);
    tokio::time::sleep(LONGEST_WAIT * WAITS).await;
    let made = calls.load(Relaxed) - before;
    assert!(made > 0, "the wait is capped, so it must look from time to time");
    assert!(made <= 2 * WAITS + 2, "{made} calls in {WAITS} longest waits");
    delivery.stop().await;
}

/// Counts the calls that look for work.
#[derive(Debug)]
struct Counting<T> {
    inner: T,
    calls: Arc<AtomicU32>,
}

#[async_trait]
impl Backend for Counting<Sqlite> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        self.inner.set_up(endpoint).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let inner = self.inner.open(endpoint, mode).await?;
        Ok(Arc::new(Counting { inner, calls: Arc::clone(&self.calls) }))
    }
}

#[async_trait]
impl DelayedMessageStore for Counting<Arc<dyn DelayedMessageStore>> {
    async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, StoreError> {
        self.inner.store(messages).await
    }

    async fn fetch_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        self.calls.fetch_add(1, Relaxed);
        self.inner.fetch_due(request).await
    }

    async fn next_due(&self, except: &[Address]) -> Result<NextDue, StoreError> {
        self.calls.fetch_add(1, Relaxed);
        self.inner.next_due(except).await
    }

    async fn changed(&self) {
        self.inner.changed().await;
    }
}

#[async_trait]
impl ScheduledMessages for Counting<Arc<dyn DelayedMessageStore>> {
    async fn get(&self, id: &MessageId) -> Result<Option<ScheduledMessage>, StoreError> {
        self.inner.get(id).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Listing, StoreError> {
        self.inner.list(query).await
    }

    async fn cancel(&self, ids: &[MessageId]) -> Result<Vec<Cancellation>, StoreError> {
        self.inner.cancel(ids).await
    }

    async fn reschedule(&self, id: &MessageId, due: Due) -> Result<Rescheduling, StoreError> {
        self.inner.reschedule(id, due).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.inner.stats().await
    }
}
