//! One batch is one transaction: it is open as long as the slowest of its destinations takes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::Timestamp;
use postdate_core::{
    Backend as _, Clock, DelayedMessageStoreExt as _, EndpointName, Settings, TokioClock, TransactionMode,
};

use crate::scenario::{Behaviour, Scenario};

/// The clock of a store, which somebody sets ahead.
#[derive(Debug)]
struct Leaping {
    clock: TokioClock,
    leapt: Arc<AtomicU64>,
}

impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        self.clock.now() + Duration::from_secs(self.leapt.load(Relaxed))
    }
}

/// Due together, so that they are one batch.
async fn send_together(scenario: &Scenario, messages: &[(&str, &str)]) {
    for (id, destination) in messages {
        scenario.send(id, destination, 1).await;
    }
    scenario.pass(1.5).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_is_in_flight_until_the_slowest_destination_answers_and_is_not_sent_again() {
    let scenario = Scenario::start().await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    send_together(&scenario, &[("a", "billing"), ("b", "hangs"), ("c", "shipping")]).await;
    assert_eq!((scenario.ids("billing").len(), scenario.ids("shipping").len()), (1, 1));
    assert_eq!(scenario.pending().await, 3, "a part of the transaction is seen");
    // Longer than the store lets a transaction be idle: it is kept alive.
    scenario.pass(30.0).await;
    assert_eq!(scenario.pending().await, 1);
    scenario.destinations.behave("hangs", None);
    scenario.pass(60.0).await;
    assert_eq!(scenario.pending().await, 0);
    for id in ["a", "c"] {
        assert_eq!(scenario.destinations.attempts_of(id), 1, "{id}");
    }
    assert_eq!(scenario.log.count("PossibleDuplicate"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_tried_again_when_the_slowest_destination_has_used_up_its_time() {
    let scenario = Scenario::with(|builder| builder.number_of_retries(3)).await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    scenario.destinations.behave("refuses", Behaviour::Rejects);
    send_together(&scenario, &[("a", "hangs"), ("b", "refuses")]).await;
    scenario.pass(28.0).await;
    assert_eq!(scenario.destinations.attempts_of("b"), 1);
    scenario.pass(3.0).await;
    assert!(scenario.destinations.attempts_of("b") > 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_cut_off_keeps_what_it_has_settled() {
    let mut settings = Settings::default();
    settings.drain_time = Duration::from_secs(1);
    let scenario = Scenario::with(|builder| builder.settings(settings)).await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    send_together(&scenario, &[("a", "billing"), ("b", "hangs")]).await;
    assert_eq!(scenario.delivery.stop().await.cut_off, 1);
    let endpoint = EndpointName::new("orders").unwrap();
    let store = scenario.memory.open(&endpoint, TransactionMode::ReceiveOnly).await.unwrap();
    let left = store.fetch(10.try_into().unwrap()).await.unwrap().messages;
    assert_eq!(left.iter().map(|due| due.message.id.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_transaction_had_removed_is_told_once_as_a_possible_duplicate() {
    let leapt = Arc::<AtomicU64>::default();
    let clock = Leaping { clock: TokioClock::starting_at(Timestamp::UNIX_EPOCH), leapt: leapt.clone() };
    let memory = crate::memory().clock(clock).build();
    let scenario = Scenario::with(|builder| builder.store(memory)).await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    send_together(&scenario, &[("a", "billing"), ("b", "hangs"), ("c", "billing")]).await;
    // By the store's clock the transaction is over before it is renewed.
    leapt.store(60, Relaxed);
    scenario.destinations.behave("hangs", None);
    scenario.pass(120.0).await;
    assert_eq!(scenario.pending().await, 0);
    assert_eq!((scenario.destinations.attempts_of("a"), scenario.destinations.attempts_of("c")), (2, 2));
    assert_eq!(scenario.log.count("PossibleDuplicate"), 2);
}
