//! What becomes of messages that cannot be delivered.

use postdate_core::{error_queue, error_queue::header};

use crate::scenario::{Behaviour, Scenario};

#[tokio::test(start_paused = true)]
async fn n_retries_are_n_plus_one_attempts_and_then_the_error_queue() {
    for retries in [0, 1, 4] {
        let scenario = Scenario::with(|builder| builder.number_of_retries(retries)).await;
        scenario.destinations.behave("billing", Behaviour::Rejects);
        scenario.send("a", "billing", 0).await;
        scenario.pass(120.0).await;
        assert_eq!(
            scenario.destinations.attempts_of("a"),
            retries as usize + 2,
            "and one for the error queue"
        );
        assert_eq!(scenario.ids("error"), ["a"]);
        assert_eq!(scenario.pending().await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_queue_gets_the_original_and_the_reason() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("billing", Behaviour::Rejects);
    scenario.send("a", "billing", 5).await;
    scenario.pass(10.0).await;
    let copy = scenario.destinations.delivered("error").remove(0);
    let headers = copy.headers.decode().unwrap();
    assert_eq!(headers.get(header::EXCEPTION_MESSAGE), Some("it refuses"));
    assert_eq!(headers.get(header::STACK_TRACE), Some("it refuses: the planted cause"));
    assert_eq!(headers.get(header::FAILED_QUEUE), Some("orders.timeouts"));
    let failed = error_queue::restore(&copy).unwrap();
    assert_eq!(failed.original.destination.as_str(), "billing");
    assert_eq!(failed.original.body, "body of a");
    assert_eq!(failed.original.headers.decode().unwrap().iter().collect::<Vec<_>>(), [("tenant", "acme")]);
    assert_eq!((failed.attempts, failed.reason.as_str()), (1, "retries-exhausted"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_destination_costs_no_retries_but_goes_to_the_error_queue_at_once() {
    let scenario = Scenario::with(|builder| builder.number_of_retries(7)).await;
    scenario.destinations.behave("nowhere", Behaviour::Missing);
    scenario.send("a", "nowhere", 0).await;
    scenario.pass(0.1).await;
    assert_eq!(scenario.ids("error"), ["a"]);
    let failed = error_queue::restore(&scenario.destinations.delivered("error")[0]).unwrap();
    assert_eq!((failed.attempts, failed.reason.as_str()), (1, "no-destination"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_message_does_not_stand_in_front_of_healthy_ones() {
    let scenario = Scenario::with(|builder| builder.number_of_retries(5)).await;
    scenario.destinations.behave("refusing", Behaviour::Rejects);
    for number in 0..10 {
        scenario.send(&format!("bad {number}"), "refusing", 0).await;
        scenario.send(&format!("good {number}"), "billing", 0).await;
    }
    scenario.pass(0.2).await;
    assert_eq!(scenario.ids("billing").len(), 10);
}

#[tokio::test(start_paused = true)]
async fn while_the_error_queue_is_unreachable_the_message_stays_and_is_not_tried_again() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("billing", Behaviour::Rejects);
    scenario.destinations.behave("error", Behaviour::Unavailable);
    scenario.send("a", "billing", 0).await;
    scenario.pass(600.0).await;
    assert_eq!(scenario.pending().await, 1);
    assert!(scenario.log.count("RecoveryFailed") < 20, "it backs off");
    scenario.destinations.behave("error", None);
    scenario.destinations.behave("billing", None);
    scenario.pass(600.0).await;
    assert_eq!(scenario.ids("error"), ["a"], "its only attempt was used up");
    let failed = error_queue::restore(&scenario.destinations.delivered("error")[0]).unwrap();
    assert_eq!(failed.error, "it refuses", "the reason is remembered");
    assert_eq!((failed.attempts, &*failed.reason), (1, "retries-exhausted"));
    assert!(scenario.ids("billing").is_empty());
}

#[tokio::test(start_paused = true)]
async fn failed_moves_to_the_error_queue_change_neither_the_reason_nor_the_number_of_attempts() {
    let scenario = Scenario::with(|builder| builder.number_of_retries(2)).await;
    scenario.destinations.behave("nowhere", Behaviour::Missing);
    scenario.destinations.behave("error", Behaviour::Unavailable);
    scenario.send("a", "nowhere", 0).await;
    scenario.pass(600.0).await;
    scenario.destinations.behave("error", None);
    scenario.pass(600.0).await;
    let failed = error_queue::restore(&scenario.destinations.delivered("error")[0]).unwrap();
    assert_eq!(failed.reason, "no-destination");
    assert_eq!(failed.attempts as usize, scenario.destinations.attempts_of("a") - moves(&scenario));
}

/// How often moving to the error queue was tried.
fn moves(scenario: &Scenario) -> usize {
    scenario.log.count("RecoveryFailed") + scenario.log.count("MovedToErrorQueue")
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_charged_to_the_message_that_causes_it() {
    let scenario = Scenario::start().await;
    scenario.destinations.poison("poison");
    for id in ["before", "poison", "after"] {
        scenario.send(id, "billing", 1).await;
    }
    scenario.pass(10.0).await;
    let mut delivered = scenario.ids("billing");
    delivered.dedup();
    assert!(
        delivered.contains(&"after".to_owned()) && delivered.contains(&"before".to_owned()),
        "{delivered:?}"
    );
    // The error queue of this scenario panics on it as well, so it waits in the store.
    assert_eq!(scenario.pending().await, 1);
    assert!(scenario.log.count("RecoveryFailed") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_panics_ends_in_the_error_queue() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("billing", Behaviour::Panics);
    scenario.send("a", "billing", 0).await;
    scenario.pass(10.0).await;
    let failed = error_queue::restore(&scenario.destinations.delivered("error")[0]).unwrap();
    assert_eq!(failed.error, "the dispatcher panicked: planted panic");
}
