//! When messages arrive.

use std::{num::NonZeroU32, time::Duration};

use postdate_core::{Cancellation, CatchUp, Due, Message, MessageId, Rescheduling, Settings};

use crate::scenario::Scenario;

#[tokio::test(start_paused = true)]
async fn a_message_arrives_when_it_is_due_and_not_before() {
    let scenario = Scenario::start().await;
    let start = tokio::time::Instant::now();
    scenario.send("a", "billing", 5).await;
    scenario.pass(10.0).await;
    let late = scenario.destinations.delivered_at("a").unwrap() - (start + Duration::from_secs(5));
    assert!(late < Duration::from_millis(5), "{late:?}");
    assert_eq!(scenario.pending().await, 0);
}

#[tokio::test(start_paused = true)]
async fn due_in_the_past_arrives_at_once_and_exactly_once() {
    let scenario = Scenario::start().await;
    let past = scenario.clock.now() - Duration::from_secs(86_400 * 3_650);
    scenario.delivery.send("billing", Message::new("x"), Due::at(past)).await.unwrap();
    scenario.pass(120.0).await;
    assert_eq!(scenario.destinations.delivered("billing").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_earlier_message_wakes_a_poller_that_waits_for_a_later_one() {
    let scenario = Scenario::start().await;
    scenario.send("later", "billing", 3_600).await;
    scenario.pass(10.0).await;
    scenario.send("sooner", "billing", 5).await;
    scenario.pass(6.0).await;
    assert_eq!(scenario.ids("billing"), ["sooner"]);
}

#[tokio::test(start_paused = true)]
async fn content_arrives_byte_for_byte() {
    let scenario = Scenario::start().await;
    let body: Vec<u8> = (0..=255).collect();
    let message = Message::new(body.clone()).header("ünïcode\u{0}", "\"'\\\n\u{1F600}");
    scenario.delivery.send("billing", message, Due::NOW).await.unwrap();
    scenario.pass(1.0).await;
    let delivered = &scenario.destinations.delivered("billing")[0];
    assert_eq!(delivered.body, body);
    assert_eq!(delivered.headers.decode().unwrap().get("ünïcode\u{0}"), Some("\"'\\\n\u{1F600}"));
}

#[tokio::test(start_paused = true)]
async fn cancelled_and_rescheduled_messages_keep_to_the_answer() {
    let scenario = Scenario::start().await;
    let [cancelled, moved, unknown] = ["cancelled", "moved", "unknown"].map(|id| MessageId::new(id).unwrap());
    scenario.send("cancelled", "billing", 60).await;
    scenario.send("moved", "billing", 3_600).await;
    assert_eq!(scenario.delivery.cancel(&cancelled).await.unwrap(), Cancellation::Cancelled);
    assert_eq!(scenario.delivery.cancel(&unknown).await.unwrap(), Cancellation::NotFound);
    assert!(matches!(
        scenario.delivery.reschedule(&moved, Due::NOW).await.unwrap(),
        Rescheduling::Rescheduled(_)
    ));
    scenario.pass(120.0).await;
    assert_eq!(scenario.ids("billing"), ["moved"]);
    assert_eq!(scenario.delivery.cancel(&moved).await.unwrap(), Cancellation::NotFound);
}

#[tokio::test(start_paused = true)]
async fn messages_later_than_permitted_go_to_the_error_queue_as_expired() {
    let mut settings = Settings::default();
    settings.catch_up = CatchUp::default().maximum_lateness(Duration::from_secs(3_600));
    let scenario = Scenario::with(|builder| builder.settings(settings)).await;
    let past = |hours: u64| Due::at(scenario.clock.now() - Duration::from_secs(3_600 * hours));
    for (id, due) in [("fresh", past(0)), ("stale", past(2))] {
        let message = Message::new("x").id(MessageId::new(id).unwrap());
        scenario.delivery.send("billing", message, due).await.unwrap();
    }
    scenario.pass(1.0).await;
    assert_eq!(scenario.ids("billing"), ["fresh"]);
    let expired = postdate_core::error_queue::restore(&scenario.destinations.delivered("error")[0]).unwrap();
    assert_eq!((expired.original.id.as_str(), expired.reason.as_str()), ("stale", "expired"));
}

#[tokio::test(start_paused = true)]
async fn a_backlog_is_worked_off_oldest_first_at_the_catch_up_rate() {
    let mut settings = Settings::default();
    settings.catch_up = CatchUp::default().rate(NonZeroU32::new(100).unwrap());
    let scenario = Scenario::with(|builder| builder.settings(settings)).await;
    for number in 0..500_u64 {
        let message = Message::new("x").id(MessageId::new(format!("{number:03}")).unwrap());
        let due = scenario.clock.now() - Duration::from_secs(10_000 - number);
        scenario.delivery.send("billing", message, Due::at(due)).await.unwrap();
    }
    scenario.pass(2.0).await;
    let after_two_seconds = scenario.ids("billing");
    assert!((190..=215).contains(&after_two_seconds.len()), "{}", after_two_seconds.len());
    assert!(after_two_seconds.is_sorted());
    scenario.pass(4.0).await;
    assert_eq!(scenario.ids("billing").len(), 500);
}
