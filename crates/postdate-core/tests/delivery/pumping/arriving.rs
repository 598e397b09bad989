//! What is handed over is stored, and delivered when it is due.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use postdate_core::{DelayedDelivery, Due, MessageId, Queues as _, StartError};

use super::scene::{BATCH, Scene, after, message, timeouts};
use crate::scenario::{Destinations, ToDestinations};

#[tokio::test(start_paused = true)]
async fn a_message_handed_to_the_queue_arrives_when_it_is_due_as_it_was_sent() {
    let scene = Scene::quiet().await;
    let destinations = std::sync::Arc::<Destinations>::default();
    let delivery = DelayedDelivery::builder("orders")
        .store(scene.memory.clone())
        .dispatcher(ToDestinations(destinations.clone()))
        .pump(scene.queues.receiver(&timeouts()).await.unwrap())
        .start()
        .await
        .unwrap();
    let start = tokio::time::Instant::now();
    scene.hand_over("a", after(5)).await;
    scene.pass(10.0).await;
    let late = destinations.delivered_at("a").unwrap() - (start + Duration::from_secs(5));
    assert!(late < Duration::from_millis(5), "{late:?}");
    assert_eq!(
        destinations.delivered("billing"),
        [message("a", Due::NOW).message],
        "no control header is left"
    );
    assert_eq!(scene.depth().await, 0);
    assert!(delivery.is_running());
    assert_eq!(delivery.stop().await.cut_off, 0);
    assert!(!delivery.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_arrives_while_the_pump_sleeps_wakes_it() {
    let scene = Scene::start().await;
    scene.pass(30.0).await;
    scene.hand_over("a", after(60)).await;
    scene.pass(0.01).await;
    assert_eq!((scene.stored().await, scene.depth().await), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_delay_counts_from_the_handing_over_however_long_the_message_waits() {
    let mut scene = Scene::quiet().await;
    let due = scene.clock.now() + Duration::from_secs(90);
    scene.hand_over("a", after(90)).await;
    scene.hand_over("b", Due::at(due)).await;
    scene.hand_over("over", after(10)).await;
    scene.pass(20.0).await;
    scene.restart().await;
    scene.pass(0.1).await;
    let late = scene.due("a").await.unwrap().duration_since(due);
    assert!(!late.is_negative() && late.as_millis() < 5, "{late}");
    assert_eq!(scene.due("b").await, Some(due), "an instant is an instant");
    assert!(scene.due("over").await.unwrap() <= scene.clock.now(), "at once");
}

#[tokio::test(start_paused = true)]
async fn where_the_queue_has_no_clock_a_delay_counts_from_receiving_so_that_nothing_is_early() {
    let mut scene = Scene::quiet().await;
    scene.queue.has_no_clock.store(true, Relaxed);
    scene.hand_over("a", after(90)).await;
    scene.pass(20.0).await;
    let from = scene.clock.now();
    scene.restart().await;
    scene.pass(0.1).await;
    assert!(scene.due("a").await.unwrap() >= from + Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_stored_in_batches_and_in_order() {
    let mut scene = Scene::quiet().await;
    let count = 5 * BATCH + 3;
    for number in 0..count {
        scene.hand_over(&format!("{number:03}"), Due::at(scene.clock.now())).await;
    }
    scene.restart().await;
    scene.pass(1.0).await;
    assert_eq!((scene.stored().await, scene.depth().await), (count as u64, 0));
    assert_eq!(scene.trouble.stores.load(Relaxed), 6);
    assert_eq!(scene.queue.receives.load(Relaxed), 7, "and one that finds nothing");
    let query = postdate_core::ListQuery::new(Default::default(), std::num::NonZeroUsize::MAX);
    let listed = scene.store.list(&query).await.unwrap().messages;
    assert!(listed.is_sorted_by_key(|stored| stored.id.clone()));
}

#[tokio::test(start_paused = true)]
async fn an_idle_pump_asks_the_queue_once_a_minute_and_the_store_nothing() {
    let scene = Scene::start().await;
    scene.pass(600.5).await;
    assert_eq!(scene.queue.receives.load(Relaxed), 11);
    assert_eq!(scene.trouble.stores.load(Relaxed) + scene.trouble.fetches.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_again_is_stored_once_even_if_it_was_rescheduled() {
    let mut scene = Scene::start().await;
    scene.queue.completing_fails.store(true, Relaxed);
    scene.hand_over("a", after(3_600)).await;
    scene.hand_over("b", Due::at(scene.clock.now() + Duration::from_secs(3_600))).await;
    scene.pass(1.0).await;
    assert_eq!((scene.stored().await, scene.depth().await), (2, 2));
    for id in ["a", "b"] {
        scene.store.reschedule(&MessageId::new(id).unwrap(), after(7_200)).await.unwrap();
    }
    scene.crash();
    scene.queue.completing_fails.store(false, Relaxed);
    scene.restart().await;
    scene.pass(1.0).await;
    assert_eq!((scene.stored().await, scene.depth().await), (2, 0));
    assert_eq!(scene.failed_ids(), [""; 0]);
    assert!(scene.due("b").await.unwrap() > scene.clock.now() + Duration::from_secs(7_000));
}

#[tokio::test(start_paused = true)]
async fn what_a_pump_lacks_is_named() {
    let scene = Scene::quiet().await;
    let builder = || postdate_core::Pump::builder("orders").store(scene.memory.clone());
    assert!(matches!(builder().start_pump().await, Err(StartError::NoReceiver)));
    let receiver = scene.queues.receiver(&timeouts()).await.unwrap();
    assert!(matches!(builder().pump(receiver.clone()).start_pump().await, Err(StartError::NoDispatcher)));
    let circle = builder().pump(receiver).dispatcher(scene.queues.dispatcher()).error_queue(timeouts());
    assert!(matches!(circle.start_pump().await, Err(StartError::Setting { name: "error_queue", .. })));
}
