//! The lock on what was received: it is renewed, or nothing is completed after its end.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use super::scene::{LEASE, Scene, after};
use crate::scenario::Behaviour;

#[tokio::test(start_paused = true)]
async fn the_lock_is_renewed_while_the_store_is_slow() {
    let scene = Scene::start().await;
    *scene.trouble.storing_takes.lock().unwrap() = 4 * LEASE;
    scene.hand_over("a", after(3_600)).await;
    for _ in 0..23 {
        scene.pass(5.0).await;
        assert_eq!(scene.free().await, [], "nobody else gets it");
    }
    scene.pass(10.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
    assert_eq!(scene.trouble.stores.load(Relaxed), 1);
    assert!(scene.queue.renewals.load(Relaxed) >= 7);
    assert_eq!(scene.log.count("PossibleDuplicate"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_renewal_nothing_is_completed_after_the_end_and_storing_again_changes_nothing() {
    let scene = Scene::start().await;
    *scene.trouble.storing_takes.lock().unwrap() = 2 * LEASE;
    scene.queue.renewing_fails.store(true, Relaxed);
    scene.hand_over("a", after(3_600)).await;
    scene.pass(10.0 * LEASE.as_secs_f64()).await;
    assert_eq!(scene.queue.completes.load(Relaxed), 0);
    assert_eq!(scene.depth().await, 1);
    scene.queue.renewing_fails.store(false, Relaxed);
    *scene.trouble.storing_takes.lock().unwrap() = Duration::ZERO;
    scene.pass(2.0 * LEASE.as_secs_f64()).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_answer_is_lost_is_repeated_and_told_as_a_possible_duplicate() {
    let scene = Scene::start().await;
    scene.queue.completions_are_lost.store(true, Relaxed);
    scene.hand_over("a", after(3_600)).await;
    scene.pass(5.0).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 1));
    scene.queue.completions_are_lost.store(false, Relaxed);
    scene.pass(5.0).await;
    assert_eq!(scene.log.count("PossibleDuplicate"), 1);
    scene.hand_over("b", after(3_600)).await;
    scene.pass(0.1).await;
    assert_eq!((scene.depth().await, scene.stored().await), (0, 2), "it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_away_is_called_seldom_however_many_batches_wait() {
    let scene = Scene::start().await;
    scene.destinations.behave("error", Behaviour::Unavailable);
    for number in 0..30 {
        scene.put_with(&format!("bad {number}"), &[]).await;
        scene.pass(0.01).await;
    }
    scene.queue.renewing_fails.store(true, Relaxed);
    scene.queue.receiving_fails.store(true, Relaxed);
    scene.pass(LEASE.as_secs_f64()).await;
    let renewals = scene.queue.renewals.load(Relaxed);
    assert!((30..=100).contains(&renewals), "{renewals} calls of 30 batches in the time of a lock");
    assert_eq!(scene.free().await.len(), 30, "nothing is held any more");
    scene.destinations.behave("error", None);
    scene.queue.renewing_fails.store(false, Relaxed);
    scene.queue.receiving_fails.store(false, Relaxed);
    scene.pass(20.0).await;
    assert_eq!((scene.depth().await, scene.failed_ids().len()), (0, 30));
}
