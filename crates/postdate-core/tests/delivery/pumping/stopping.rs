//! How a pump ends.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use super::scene::{Scene, after};
use crate::scenario::Behaviour;

#[tokio::test(start_paused = true)]
async fn stopping_an_idle_pump_takes_no_time() {
    let scene = Scene::start().await;
    scene.pass(1.0).await;
    let start = tokio::time::Instant::now();
    assert_eq!(scene.pump().stop().await.cut_off, 0);
    assert!(start.elapsed() < Duration::from_millis(10));
    assert!(!scene.pump().is_running());
    scene.hand_over("a", after(3_600)).await;
    scene.pass(120.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (1, 0), "it receives nothing more");
    assert_eq!((scene.log.count("PumpStarted"), scene.log.count("PumpStopped")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_being_stored_is_finished() {
    let scene = Scene::start().await;
    *scene.trouble.storing_takes.lock().unwrap() = Duration::from_secs(20);
    scene.hand_over("a", after(3_600)).await;
    scene.pass(1.0).await;
    assert_eq!(scene.pump().stop().await.cut_off, 0);
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_stored_within_the_drain_time_is_given_back() {
    let scene = Scene::start().await;
    *scene.trouble.storing_takes.lock().unwrap() = Duration::from_secs(3_600);
    scene.hand_over("a", after(3_600)).await;
    scene.pass(1.0).await;
    let start = tokio::time::Instant::now();
    assert_eq!(scene.pump().stop().await.cut_off, 1);
    assert!(start.elapsed() <= Duration::from_secs(31), "{:?}", start.elapsed());
    assert_eq!(scene.free().await.len(), 1, "nobody holds it");
    assert_eq!((scene.stored().await, scene.queue.completes.load(Relaxed)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_error_queue_is_given_back_at_once() {
    let scene = Scene::start().await;
    scene.destinations.behave("error", Behaviour::Unavailable);
    scene.put_with("bad", &[]).await;
    scene.pass(60.0).await;
    assert_eq!(scene.free().await, []);
    let start = tokio::time::Instant::now();
    assert_eq!(scene.pump().stop().await.cut_off, 0);
    assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
    assert_eq!(scene.free().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_call_that_is_given_up_is_never_acknowledged_to_the_queue() {
    let mut scene = Scene::start().await;
    *scene.trouble.storing_takes.lock().unwrap() = Duration::from_secs(3_600);
    scene.hand_over("a", after(3_600)).await;
    scene.pass(1.0).await;
    scene.crash();
    scene.pass(0.01).await;
    assert_eq!(scene.queue.completes.load(Relaxed), 0);
    assert_eq!(scene.free().await.len(), 1, "nobody holds it");
    *scene.trouble.storing_takes.lock().unwrap() = Duration::ZERO;
    scene.restart().await;
    scene.pass(1.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
}
