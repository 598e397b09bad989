//! A store or a queue that is not there for a while.

use std::sync::atomic::Ordering::Relaxed;

use postdate_core::{BreakerName, StoreErrorKind};

use super::scene::{Scene, after};

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_all_stays_in_the_queue_and_nothing_counts_against_it() {
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::Full, StoreErrorKind::NotSetUp] {
        let scene = Scene::start().await;
        scene.trouble.storing_fails.store(true, Relaxed);
        *scene.trouble.failing_with.lock().unwrap() = Some(kind);
        for number in 0..100 {
            scene.hand_over(&format!("{number}"), after(3_600)).await;
        }
        scene.pass(600.0).await;
        assert_eq!((scene.depth().await, scene.stored().await), (100, 0), "{kind:?}");
        assert_eq!(scene.pump().tripped_breakers(), [BreakerName::Store]);
        assert_eq!(scene.log.count("BreakerTripped"), 1, "once per episode");
        let (stores, receives) = (scene.trouble.stores.load(Relaxed), scene.queue.receives.load(Relaxed));
        assert!(stores <= 100 && receives <= 100, "{stores} stores and {receives} receives in ten minutes");
        scene.trouble.storing_fails.store(false, Relaxed);
        scene.pass(11.0).await;
        assert_eq!((scene.depth().await, scene.stored().await), (0, 100));
        assert_eq!(scene.failed_ids(), [""; 0]);
        assert!(scene.pump().tripped_breakers().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_probed_by_one_message_and_the_others_are_free() {
    let scene = Scene::start().await;
    scene.trouble.storing_fails.store(true, Relaxed);
    for number in 0..10 {
        scene.hand_over(&format!("{number}"), after(3_600)).await;
    }
    scene.pass(120.0).await;
    let deliveries: Vec<u32> = scene.free().await.iter().map(|queued| queued.deliveries).collect();
    assert_eq!(deliveries.len(), 10, "between two probes nothing is held");
    assert!(deliveries[1..].iter().all(|times| *times == 1), "{deliveries:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_reasons_unknown_is_away_too() {
    let scene = Scene::start().await;
    scene.trouble.storing_fails.store(true, Relaxed);
    *scene.trouble.failing_with.lock().unwrap() = Some(StoreErrorKind::Other);
    for number in 0..3 {
        scene.hand_over(&format!("{number}"), after(3_600)).await;
    }
    scene.pass(600.0).await;
    assert_eq!((scene.depth().await, scene.failed_ids().len()), (3, 0));
    assert_eq!(scene.pump().tripped_breakers(), [BreakerName::Store]);
    let stores = scene.trouble.stores.load(Relaxed);
    assert!(stores <= 500, "{stores}");
    scene.trouble.storing_fails.store(false, Relaxed);
    scene.pass(11.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_away_is_left_alone_and_trips_a_breaker_of_its_own() {
    let scene = Scene::start().await;
    scene.queue.receiving_fails.store(true, Relaxed);
    scene.hand_over("a", after(3_600)).await;
    scene.pass(600.0).await;
    assert_eq!(scene.pump().tripped_breakers(), [BreakerName::Receive]);
    let receives = scene.queue.receives.load(Relaxed);
    assert!(receives <= 100, "{receives}");
    scene.queue.receiving_fails.store(false, Relaxed);
    scene.pass(11.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
    assert!(scene.pump().tripped_breakers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_panics_is_a_queue_that_fails() {
    let scene = Scene::start().await;
    scene.queue.receiving_panics.store(true, Relaxed);
    scene.hand_over("a", after(3_600)).await;
    scene.pass(60.0).await;
    assert_eq!(scene.pump().tripped_breakers(), [BreakerName::Receive]);
    scene.queue.receiving_panics.store(false, Relaxed);
    scene.queue.waiting_panics.store(true, Relaxed);
    scene.pass(11.0).await;
    scene.hand_over("b", after(3_600)).await;
    scene.pass(61.0).await;
    assert_eq!(
        (scene.depth().await, scene.stored().await),
        (0, 2),
        "the longest wait goes by without being woken"
    );
    scene.queue.completing_panics.store(true, Relaxed);
    scene.hand_over("c", after(3_600)).await;
    scene.pass(120.0).await;
    let completes = scene.queue.completes.load(Relaxed);
    assert!((20..=80).contains(&completes), "a pause follows each panic: {completes}");
    scene.queue.completing_panics.store(false, Relaxed);
    scene.pass(2.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 3));
    assert!(scene.pump().is_running());
}
