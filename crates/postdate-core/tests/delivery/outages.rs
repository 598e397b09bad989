//! Destinations that are not there for a while.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use postdate_core::{
    BreakerName, Cancellation, DispatchError, Dispatcher, Due, Enlistment, Message, MessageId,
    OutgoingMessage, Settings, StoreError, TransactionMode,
};

use crate::scenario::{Behaviour, Scenario, address};

#[tokio::test(start_paused = true)]
async fn an_outage_consumes_no_retries_and_delivery_resumes_by_itself() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("billing", Behaviour::Unavailable);
    for number in 0..100 {
        scenario.send(&number.to_string(), "billing", 0).await;
    }
    scenario.pass(600.0).await;
    assert_eq!(scenario.pending().await, 100);
    scenario.destinations.behave("billing", None);
    scenario.pass(11.0).await;
    assert_eq!(scenario.ids("billing").len(), 100);
    assert!(scenario.ids("error").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_one_probe_per_pause_however_many_messages_wait() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("billing", Behaviour::Unavailable);
    for number in 0..1_000 {
        scenario.send(&number.to_string(), "billing", 1).await;
    }
    scenario.pass(2.0).await;
    let before = scenario.destinations.attempts.lock().unwrap().len();
    scenario.pass(60.0).await;
    let probes = scenario.destinations.attempts.lock().unwrap().len() - before;
    assert!(probes <= 40, "{probes} attempts in a minute");
}

#[tokio::test(start_paused = true)]
async fn others_keep_their_pace_while_one_destination_is_down() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("down", Behaviour::Unavailable);
    for number in 0..2_000 {
        scenario.send(&format!("down {number}"), "down", 0).await;
    }
    scenario.pass(5.0).await;
    let start = tokio::time::Instant::now();
    scenario.send("healthy", "billing", 1).await;
    scenario.pass(5.0).await;
    let took = scenario.destinations.delivered_at("healthy").unwrap() - start;
    assert!(took.as_millis() < 1_050, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_hangs_does_not_hold_up_the_others() {
    let scenario = Scenario::start().await;
    for name in ["hangs 1", "hangs 2", "hangs 3", "hangs 4"] {
        scenario.destinations.behave(name, Behaviour::Hangs);
        scenario.send(name, name, 0).await;
        scenario.pass(0.5).await;
    }
    scenario.pass(5.0).await;
    let start = tokio::time::Instant::now();
    scenario.send("healthy", "billing", 1).await;
    scenario.pass(5.0).await;
    let took = scenario.destinations.delivered_at("healthy").unwrap() - start;
    assert!(took.as_millis() < 1_050, "{took:?}");
    for name in ["hangs 1", "hangs 2", "hangs 3", "hangs 4"] {
        scenario.destinations.behave(name, None);
    }
    scenario.pass(120.0).await;
    assert_eq!(scenario.pending().await, 0);
    assert!(scenario.ids("error").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_queue_that_hangs_holds_up_nobody() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("choosy", Behaviour::Rejects);
    scenario.destinations.behave("error", Behaviour::Hangs);
    for second in 0..120 {
        scenario.send(&format!("bad {second}"), "choosy", second).await;
        scenario.send(&format!("good {second}"), "billing", second).await;
    }
    let start = tokio::time::Instant::now();
    scenario.pass(130.0).await;
    for second in 0..120 {
        let at = scenario.destinations.delivered_at(&format!("good {second}")).unwrap() - start;
        assert!(at.as_secs_f64() < second as f64 + 2.0, "good {second} after {at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_breaker_of_a_destination_that_nobody_asks_for_any_more_does_not_stay_open() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("billing", Behaviour::Unavailable);
    scenario.send("a", "billing", 0).await;
    scenario.pass(60.0).await;
    assert_eq!(scenario.delivery.tripped_breakers(), [BreakerName::Dispatch(address("billing"))]);
    let id = MessageId::new("a").unwrap();
    let mut answer = scenario.delivery.cancel(&id).await.unwrap();
    while answer == Cancellation::InFlight {
        scenario.pass(0.1).await;
        answer = scenario.delivery.cancel(&id).await.unwrap();
    }
    scenario.pass(700.0).await;
    assert!(scenario.delivery.tripped_breakers().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_trips_raises_the_critical_error_once_per_episode() {
    let raised = Arc::new(AtomicUsize::new(0));
    let counter = raised.clone();
    let scenario = Scenario::with(|builder| {
        builder.on_critical_error(move |critical| {
            assert_eq!(critical.breaker, BreakerName::Dispatch(address("billing")));
            counter.fetch_add(1, Relaxed);
        })
    })
    .await;
    for episode in 1..=2 {
        scenario.destinations.behave("billing", Behaviour::Unavailable);
        scenario.send(&format!("message {episode}"), "billing", 0).await;
        scenario.pass(25.0).await;
        assert_eq!(raised.load(Relaxed), episode - 1, "not before the time to trigger");
        scenario.pass(300.0).await;
        assert_eq!(raised.load(Relaxed), episode);
        assert_eq!(scenario.delivery.tripped_breakers(), [BreakerName::Dispatch(address("billing"))]);
        scenario.destinations.behave("billing", None);
        scenario.pass(11.0).await;
        assert!(scenario.delivery.tripped_breakers().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn every_destination_of_a_batch_gets_one_call_of_its_own() {
    let scenario = Scenario::start().await;
    let to = |destination| Message::new("x").to(address(destination), Due::NOW);
    let messages = ["billing", "shipping", "billing", "archive", "shipping", "billing"].map(to);
    scenario.delivery.send_batch(&messages).await.unwrap();
    scenario.pass(1.0).await;
    let mut calls = scenario.destinations.calls.lock().unwrap().clone();
    calls.sort();
    assert_eq!(calls, [vec!["archive"], vec!["billing"; 3], vec!["shipping"; 2]]);
}

/// A dispatcher that takes one message at a time and hangs over more.
#[derive(Debug)]
struct OneAtATime;

#[async_trait]
impl Dispatcher for OneAtATime {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(true)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        if messages.len() > 1 {
            std::future::pending::<()>().await;
        }
        vec![Ok(())]
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_gets_through_counts_though_the_rest_breaks_its_transaction() {
    let mut settings = Settings::default();
    settings.send_time_limit = Duration::from_secs(8);
    let scenario = Scenario::with(|builder| {
        let builder = builder.dispatcher(OneAtATime).settings(settings);
        builder.transaction_mode(TransactionMode::TransactionScope)
    })
    .await;
    let message = |id: &str| {
        let id = MessageId::new(id).unwrap();
        Message::new("body").id(id).to(address("billing"), Due::NOW)
    };
    scenario.delivery.send_batch(&["a", "b", "c"].map(message)).await.unwrap();
    for _ in 0..20 {
        scenario.pass(5.0).await;
        assert!(scenario.delivery.tripped_breakers().is_empty(), "every pause ends with a success");
    }
    assert!(scenario.log.count("BreakerTripped") == 0 && scenario.pending().await > 0);
}
