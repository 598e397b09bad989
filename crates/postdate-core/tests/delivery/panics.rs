//! Stores that panic or fail, and settings at their limits.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use postdate_core::{
    BreakerName, DelayedDelivery, Due, Memory, Message, Queues as _, Settings, TransactionMode,
};

use crate::{
    scenario::{Behaviour, Scenario, address},
    troubled::{Trouble, Troubled},
};

async fn troubled() -> (Scenario, Arc<Trouble>) {
    let trouble = Arc::<Trouble>::default();
    let store = Troubled(Memory::new(), trouble.clone());
    (Scenario::with(|builder| builder.store(store)).await, trouble)
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_is_a_store_that_fails() {
    let (scenario, trouble) = troubled().await;
    trouble.fetching_panics.store(true, Relaxed);
    scenario.send("a", "billing", 0).await;
    scenario.pass(60.0).await;
    assert_eq!(scenario.delivery.tripped_breakers(), [BreakerName::Fetch]);
    assert!(trouble.fetches.load(Relaxed) < 60, "it is left alone in between");
    trouble.fetching_panics.store(false, Relaxed);
    scenario.pass(11.0).await;
    assert_eq!(scenario.ids("billing"), ["a"]);
    assert!(scenario.delivery.tripped_breakers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn storing_that_fails_for_long_trips_its_breaker_and_one_success_closes_it() {
    let (scenario, trouble) = troubled().await;
    trouble.storing_fails.store(true, Relaxed);
    for _ in 0..=31 {
        scenario.delivery.send("billing", Message::new("x"), Due::NOW).await.unwrap_err();
        scenario.pass(1.0).await;
    }
    assert_eq!(scenario.delivery.tripped_breakers(), [BreakerName::Store]);
    assert_eq!(scenario.log.count("BreakerTripped"), 1);
    trouble.storing_fails.store(false, Relaxed);
    scenario.send("a", "billing", 0).await;
    assert!(scenario.delivery.tripped_breakers().is_empty());
    assert_eq!(scenario.log.count("BreakerClosed"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_panics_is_followed_by_a_pause_and_its_destination_is_not_forgotten() {
    let (scenario, trouble) = troubled().await;
    scenario.destinations.behave("billing", Behaviour::Unavailable);
    scenario.send("a", "billing", 0).await;
    scenario.pass(5.0).await;
    // From here on the destination is shut; the batch that probes it panics.
    trouble.removing_panics.store(true, Relaxed);
    scenario.destinations.behave("billing", None);
    let before = trouble.fetches.load(Relaxed);
    scenario.pass(20.0).await;
    assert!(trouble.fetches.load(Relaxed) - before < 60, "no spinning");
    trouble.removing_panics.store(false, Relaxed);
    scenario.pass(20.0).await;
    assert_eq!(scenario.pending().await, 0);
    let Scenario { delivery, .. } = scenario;
    let start = tokio::time::Instant::now();
    delivery.stop().await;
    assert!(start.elapsed() < Duration::from_secs(1), "no place is taken for ever");
}

#[tokio::test(start_paused = true)]
async fn in_one_transaction_a_removal_that_fails_is_paused_after_and_trips_the_breaker() {
    let (memory, trouble) = (Memory::new(), Arc::<Trouble>::default());
    let queues = memory.queues();
    for name in ["billing", "error"] {
        queues.create(&address(name)).await.unwrap();
    }
    let delivery = DelayedDelivery::builder("orders")
        .store(Troubled(memory, trouble.clone()))
        .dispatcher(queues.dispatcher())
        .transaction_mode(TransactionMode::TransactionScope)
        .start()
        .await
        .unwrap();
    trouble.removing_fails.store(true, Relaxed);
    delivery.send("billing", Message::new("x"), Due::NOW).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(trouble.fetches.load(Relaxed) < 60, "{} fetches in a minute", trouble.fetches.load(Relaxed));
    assert_eq!(delivery.tripped_breakers(), [BreakerName::Fetch]);
    trouble.removing_fails.store(false, Relaxed);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let depths: Vec<u64> = queues.list().await.unwrap().iter().map(|queue| queue.depth).collect();
    assert_eq!(depths, [1, 0], "once in billing, nothing in error");
}

#[tokio::test(start_paused = true)]
async fn a_poison_copy_does_not_keep_others_from_the_error_queue() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("billing", Behaviour::Rejects);
    scenario.destinations.poison("poison");
    for id in ["innocent 1", "poison", "innocent 2"] {
        scenario.send(id, "billing", 1).await;
    }
    scenario.pass(10.0).await;
    let mut moved = scenario.ids("error");
    moved.sort();
    moved.dedup();
    assert_eq!(moved, ["innocent 1", "innocent 2"]);
    assert_eq!(scenario.pending().await, 1);
}

#[tokio::test(start_paused = true)]
async fn waits_without_end_are_waits_without_end() {
    let mut settings = Settings::default();
    settings.slow_after = Duration::MAX;
    settings.drain_time = Duration::MAX;
    settings.time_to_trigger_dispatch_circuit_breaker = Duration::MAX;
    let scenario = Scenario::with(|builder| builder.settings(settings)).await;
    scenario.send("a", "billing", 0).await;
    scenario.pass(1.0).await;
    assert_eq!(scenario.ids("billing"), ["a"]);
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    scenario.send("b", "hangs", 0).await;
    scenario.pass(1.0).await;
    let Scenario { delivery, .. } = scenario;
    let start = tokio::time::Instant::now();
    delivery.stop().await;
    assert!(
        start.elapsed() > Duration::from_secs(25),
        "it waited for the send time limit: {:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_back_does_not_wait_for_one_that_hangs() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("back", Behaviour::Unavailable);
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    scenario.send("first", "back", 0).await;
    scenario.pass(0.2).await;
    // One batch probes the one and hangs at the other.
    for id in ["back 1", "back 2"] {
        scenario.send(id, "back", 0).await;
    }
    scenario.send("stuck", "hangs", 0).await;
    scenario.destinations.behave("back", None);
    scenario.pass(3.0).await;
    assert_eq!(scenario.ids("back").len(), 3, "{:?}", scenario.ids("back"));
}
