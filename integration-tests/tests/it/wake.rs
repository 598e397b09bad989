//! A delivery that sleeps, and another handle on the file that stores something for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use postdate::{
    Backend, DelayedDelivery, DelayedMessageStoreExt, Due, EndpointName, Message, Queues, TransactionMode,
};

use crate::scene::{Diary, Scene, address, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_stored_by_another_process_wakes_a_delivery_within_50_ms() {
    let scene = Scene::new();
    let sqlite = scene.open_with(&["error", "billing"]).await;
    let diary = Arc::new(Diary::default());
    let delivery = DelayedDelivery::builder("orders")
        .store(sqlite.clone())
        .dispatcher(sqlite.queues().dispatcher())
        .observer(diary.clone())
        .start()
        .await
        .unwrap();
    let endpoint = EndpointName::new("orders").unwrap();
    let other = scene.open().await.open(&endpoint, TransactionMode::None).await.unwrap();

    let mut waits = Vec::new();
    for number in 1..=21 {
        let message = Message::new("wake up").to(address("billing"), Due::NOW);
        other.store_one(message).await.unwrap();
        let stored = Instant::now();
        eventually("delivery", async || diary.delivered("billing") == number).await;
        waits.push(stored.elapsed());
    }
    waits.sort();
    // The median: one of them may meet a machine that is busy with something else.
    assert!(waits[10] <= Duration::from_millis(50), "{waits:?}");
    delivery.stop().await;
}
