//! Messages that cannot be stored by their own fault.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use postdate_core::{
    DelayedMessageStoreExt as _, Due, Queues as _, StoreErrorKind, error_queue, error_queue::header,
};

use super::scene::{BATCH, Scene, after, message, timeouts};
use crate::scenario::Behaviour;

/// Hands over every kind of poison among as many healthy messages as make a batch.
async fn hand_over_poison(scene: &Scene) {
    let other = message("conflict", after(60));
    scene.store.store_one(other).await.unwrap();
    for number in 0..BATCH - 5 {
        match number {
            0 => scene.put_with("nowhere", &[("postdate.due", "PT1M")]).await,
            4 => {
                let mut conflict = message("conflict", after(3_600));
                conflict.message.body = "something else".into();
                scene.put(conflict.through(timeouts())).await;
            }
            9 => {
                let mut large = message("large", after(3_600));
                large.message.body = vec![0; 5 << 20].into();
                scene.put(large.through(timeouts())).await;
            }
            14 => scene.hand_over("never", Due::after(Duration::MAX)).await,
            _ => {}
        }
        scene.hand_over(&format!("healthy {number}"), after(3_600)).await;
    }
}

const POISON: [&str; 4] = ["conflict", "large", "never", "nowhere"];
const HEALTHY: u64 = BATCH as u64 - 5;

#[tokio::test(start_paused = true)]
async fn poison_goes_to_the_error_queue_alone_and_the_rest_of_its_batch_is_stored() {
    let mut scene = Scene::quiet().await;
    hand_over_poison(&scene).await;
    scene.restart().await;
    scene.pass(0.1).await;
    assert_eq!(scene.failed_ids(), POISON);
    assert_eq!((scene.stored().await, scene.depth().await), (HEALTHY + 1, 0));
    assert_eq!(scene.log.count("MovedToErrorQueue"), 4);
    assert!(scene.pump().tripped_breakers().is_empty() && scene.log.count("StoreFailed") == 0);
}

#[tokio::test(start_paused = true)]
async fn the_error_queue_gets_the_original_and_the_reason() {
    let mut scene = Scene::quiet().await;
    hand_over_poison(&scene).await;
    scene.restart().await;
    scene.pass(0.1).await;
    for (copy, says) in
        scene.failed().iter().zip(["with other content", "bytes of at most", "end of time", "no header"])
    {
        let headers = copy.headers.decode().unwrap();
        assert_eq!(headers.get(header::FAILED_QUEUE), Some("orders.timeouts"));
        let failed = error_queue::restore(copy).unwrap();
        assert_eq!((failed.reason.as_str(), failed.attempts), ("not-storable", 1));
        assert!(failed.error.contains(says), "{}", failed.error);
        let to = if copy.id.as_str() == "nowhere" { "orders.timeouts" } else { "billing" };
        assert_eq!(failed.original.destination.as_str(), to);
    }
    let [conflict, .., nowhere] = &scene.failed()[..] else { panic!() };
    let conflict = error_queue::restore(conflict).unwrap();
    assert_eq!(conflict.original.headers, message("conflict", Due::NOW).message.headers);
    assert_eq!(conflict.due.duration_since(scene.clock.now()).as_secs(), 3_599, "as it wished");
    let nowhere = error_queue::restore(nowhere).unwrap().original;
    assert_eq!(nowhere.headers.decode().unwrap().get("postdate.due"), Some("PT1M"), "as it was in the queue");
}

#[tokio::test(start_paused = true)]
async fn a_message_over_which_the_store_panics_is_told_from_a_store_that_is_away() {
    let scene = Scene::start().await;
    *scene.trouble.panics_over.lock().unwrap() = Some("body of bad");
    scene.hand_over("bad", after(3_600)).await;
    scene.pass(120.0).await;
    assert_eq!((scene.depth().await, scene.failed_ids().len()), (1, 0), "alone it may be the store's fault");
    scene.hand_over("good", after(3_600)).await;
    scene.pass(11.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
    assert_eq!(scene.failed_ids(), ["bad"]);
    assert!(scene.pump().tripped_breakers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_in_doubt_does_not_keep_others_in_doubt_from_being_tried() {
    let mut scene = Scene::quiet().await;
    for id in ["bad", "good", "better"] {
        scene.hand_over(id, after(3_600)).await;
    }
    // The store breaks over all of them, and then over one.
    scene.trouble.storing_fails.store(true, Relaxed);
    *scene.trouble.failing_with.lock().unwrap() = Some(StoreErrorKind::Other);
    scene.restart().await;
    scene.pass(60.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (3, 0));
    *scene.trouble.panics_over.lock().unwrap() = Some("body of bad");
    scene.trouble.storing_fails.store(false, Relaxed);
    scene.pass(60.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 2));
    assert_eq!(scene.failed_ids(), ["bad"]);
}

#[tokio::test(start_paused = true)]
async fn while_the_error_queue_is_unreachable_poison_stays_and_holds_up_nobody() {
    let mut scene = Scene::quiet().await;
    scene.destinations.behave("error", Behaviour::Unavailable);
    hand_over_poison(&scene).await;
    scene.restart().await;
    scene.pass(300.0).await;
    assert_eq!((scene.stored().await, scene.depth().await), (HEALTHY + 1, 4));
    let failures = scene.log.count("RecoveryFailed");
    assert!((4..=80).contains(&failures), "it backs off: {failures}");
    scene.hand_over("later", after(3_600)).await;
    scene.pass(0.1).await;
    assert!(scene.due("later").await.is_some());
    scene.destinations.behave("error", None);
    scene.pass(301.0).await;
    assert_eq!(scene.failed_ids(), POISON);
    assert_eq!(scene.depth().await, 0);
    let reasons = scene.failed().iter().all(|copy| error_queue::restore(copy).unwrap().attempts == 1);
    assert!(reasons, "failed moves are no attempts");
}

#[tokio::test(start_paused = true)]
async fn an_error_queue_that_hangs_holds_up_nobody() {
    let scene = Scene::start().await;
    scene.destinations.behave("error", Behaviour::Hangs);
    scene.put_with("bad 1", &[]).await;
    scene.pass(1.0).await;
    for second in 0..10 {
        scene.put_with(&format!("bad {second}"), &[]).await;
        scene.hand_over(&format!("good {second}"), after(3_600)).await;
        scene.pass(0.1).await;
        assert_eq!(scene.stored().await, second + 1);
    }
    scene.destinations.behave("error", None);
    scene.pass(400.0).await;
    assert_eq!((scene.depth().await, scene.failed_ids().len()), (0, 11));
}

#[tokio::test(start_paused = true)]
async fn no_more_than_so_much_poison_is_held_until_the_error_queue_is_back() {
    let mut scene = Scene::quiet().await;
    scene.destinations.behave("error", Behaviour::Unavailable);
    for number in 0..500 + BATCH {
        scene.put_with(&format!("bad {number:03}"), &[]).await;
    }
    scene.hand_over("good", after(3_600)).await;
    scene.restart().await;
    scene.pass(600.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (500 + BATCH as u64 + 1, 0));
    assert_eq!(scene.free().await.len(), BATCH + 1);
    scene.destinations.behave("error", None);
    scene.pass(301.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
    assert_eq!(scene.failed_ids().len(), 500 + BATCH);
    assert!(scene.queue.renewals.load(Relaxed) > 0, "what waits is held");
}

#[tokio::test(start_paused = true)]
async fn any_number_of_messages_over_which_the_store_panics_do_not_block_the_queue() {
    let mut scene = Scene::quiet().await;
    *scene.trouble.panics_over.lock().unwrap() = Some("body of bad");
    for _ in 0..2 * BATCH {
        scene.hand_over("bad", after(3_600)).await;
    }
    scene.hand_over("good", after(3_600)).await;
    scene.restart().await;
    scene.pass(400.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
    assert_eq!(scene.failed_ids(), ["bad"; 2 * BATCH]);
    let stores = scene.trouble.stores.load(Relaxed);
    // Each alone and in ever smaller company, one new message a round, and all once more beside the good one.
    assert!(stores < 7 * BATCH, "{stores} calls");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_before_and_after_another_is_stored_is_to_blame() {
    let scene = Scene::start().await;
    *scene.trouble.panics_over.lock().unwrap() = Some("body of bad");
    scene.hand_over("bad", after(3_600)).await;
    scene.pass(60.0).await;
    // Another pump takes this one, so that the two never meet in a batch; this process stores a third.
    assert_eq!((scene.depth().await, scene.failed_ids().len()), (1, 0));
    let delivery = postdate_core::DelayedDelivery::builder("orders")
        .store(crate::troubled::Troubled(scene.memory.clone(), scene.trouble.clone()))
        .dispatcher(crate::scenario::ToDestinations(scene.destinations.clone()))
        .pump(scene.queues.receiver(&timeouts()).await.unwrap())
        .start()
        .await
        .unwrap();
    scene.pass(30.0).await;
    assert_eq!(scene.failed_ids().len(), 0);
    delivery.send_batch(&[message("direct", after(3_600))]).await.unwrap();
    scene.pass(30.0).await;
    assert_eq!((scene.depth().await, scene.failed_ids()), (0, vec!["bad".to_owned()]));
}
