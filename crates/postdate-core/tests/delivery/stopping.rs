//! How delivery ends.

use std::time::Duration;

use postdate_core::Settings;

use crate::scenario::{Behaviour, Scenario};

#[tokio::test(start_paused = true)]
async fn stopping_an_idle_delivery_takes_no_time() {
    let scenario = Scenario::start().await;
    scenario.send("later", "billing", 3_600).await;
    scenario.pass(1.0).await;
    let start = tokio::time::Instant::now();
    let Scenario { delivery, .. } = scenario;
    assert_eq!(delivery.stop().await.cut_off, 0);
    assert!(start.elapsed() < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn stopping_gives_back_what_is_not_done_within_the_drain_time() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    scenario.send("a", "hangs", 0).await;
    scenario.pass(0.2).await;
    let Scenario { delivery, memory, log, .. } = scenario;
    let start = tokio::time::Instant::now();
    let stopped = delivery.stop().await;
    assert!(start.elapsed() <= Duration::from_secs(31), "{:?}", start.elapsed());
    assert!(stopped.cut_off <= 1);
    assert_eq!(log.count("Stopped"), 1);
    let stats = stats(&memory).await;
    assert_eq!((stats.pending, stats.in_flight), (1, 0), "it is there and nobody holds it");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_delivery_leaves_no_claim_and_no_task() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    scenario.send("a", "hangs", 0).await;
    scenario.pass(0.2).await;
    let Scenario { delivery, memory, .. } = scenario;
    drop(delivery);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(stats(&memory).await.in_flight, 0);
}

async fn stats(memory: &postdate_core::Memory) -> postdate_core::Stats {
    use postdate_core::{Backend as _, EndpointName, TransactionMode};
    let endpoint = EndpointName::new("orders").unwrap();
    memory.open(&endpoint, TransactionMode::None).await.unwrap().stats().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn stopping_tells_how_many_batches_it_cut_off() {
    let mut settings = Settings::default();
    settings.drain_time = Duration::from_secs(1);
    let scenario = Scenario::with(|builder| builder.settings(settings)).await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    for id in ["a", "b"] {
        scenario.send(id, "hangs", 0).await;
        scenario.pass(0.2).await;
    }
    let start = tokio::time::Instant::now();
    assert_eq!(scenario.delivery.stop().await.cut_off, 2);
    assert_eq!(start.elapsed().as_secs(), 1);
    assert_eq!(stats(&scenario.memory).await.in_flight, 0);
}
