//! Stopping in the middle of work.

use std::{pin::pin, sync::Arc};

use async_trait::async_trait;
use postdate::{
    DelayedDelivery, DispatchError, Dispatcher, Due, Enlistment, Message, OutgoingMessage, Queues, StoreError,
};
use tokio::sync::Semaphore;

use crate::scene::{Scene, address, all_settled, ids};

const MESSAGES: usize = 3_000;

#[tokio::test]
async fn stopping_finishes_what_is_on_its_way_and_leaves_the_rest_for_the_next_start() {
    let scene = Scene::new();
    let sqlite = scene.open_with(&["error", "billing"]).await;
    let gate = Arc::new(Semaphore::new(0));
    let entered = Arc::new(Semaphore::new(0));
    let slow =
        Gated { inner: sqlite.queues().dispatcher(), gate: Arc::clone(&gate), entered: Arc::clone(&entered) };
    let delivery = DelayedDelivery::builder("orders")
        .store(sqlite.clone())
        .dispatcher(slow)
        .error_dispatcher(sqlite.queues().dispatcher())
        .start()
        .await
        .unwrap();
    let message = |i: usize| Message::new(i.to_string()).to(address("billing"), Due::NOW);
    delivery.send_batch(&(0..MESSAGES).map(message).collect::<Vec<_>>()).await.unwrap();
    entered.acquire().await.unwrap().forget();

    let mut stopping = pin!(delivery.stop());
    assert!(futures::poll!(&mut stopping).is_pending(), "it waits for what is on its way");
    gate.close();
    let stopped = stopping.await;
    assert_eq!(stopped.cut_off, 0, "what was on its way had all the time it needed");
    let first = scene.queued("billing").await.len();
    assert!(first > 0 && first < MESSAGES, "{first} of {MESSAGES} were delivered before the stop");

    let delivery = DelayedDelivery::builder("orders")
        .store(sqlite.clone())
        .dispatcher(sqlite.queues().dispatcher())
        .start()
        .await
        .unwrap();
    all_settled(&delivery).await;
    delivery.stop().await;
    let arrived = scene.queued("billing").await;
    let mut distinct = ids(&arrived);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!((arrived.len(), distinct.len()), (MESSAGES, MESSAGES));
}

/// Queues that take nothing before the gate is closed for good.
#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Dispatcher>,
    gate: Arc<Semaphore>,
    entered: Arc<Semaphore>,
}

#[async_trait]
impl Dispatcher for Gated {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        self.entered.add_permits(1);
        assert!(self.gate.acquire().await.is_err(), "the gate has no permits: it can only be closed");
        self.inner.dispatch(messages, None).await
    }
}
