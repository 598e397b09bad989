//! What a delivery tells whoever holds it.

use postdate_core::{Cancellation, Due, Message, MessageId, SendError};

use crate::scenario::{Scenario, address};

#[tokio::test(start_paused = true)]
async fn a_cancellation_is_told_if_it_took_something_back() {
    let scenario = Scenario::start().await;
    scenario.send("later", "billing", 3_600).await;
    let [later, unknown] = ["later", "unknown"].map(|id| MessageId::new(id).unwrap());
    assert_eq!(scenario.delivery.cancel(&unknown).await.unwrap(), Cancellation::NotFound);
    assert_eq!(scenario.log.count("Cancelled"), 0);
    assert_eq!(scenario.delivery.cancel(&later).await.unwrap(), Cancellation::Cancelled);
    assert_eq!(scenario.log.count("Cancelled"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_can_be_looked_up_while_it_waits() {
    let scenario = Scenario::start().await;
    scenario.send("later", "billing", 3_600).await;
    let found = scenario.delivery.get(&MessageId::new("later").unwrap()).await.unwrap().unwrap();
    assert_eq!(found.message.message.destination, address("billing"));
    assert_eq!(scenario.delivery.get(&MessageId::new("unknown").unwrap()).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_runs_until_it_is_stopped() {
    let scenario = Scenario::start().await;
    scenario.pass(300.0).await;
    assert!(scenario.delivery.is_running());
    scenario.delivery.stop().await;
    assert!(!scenario.delivery.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_messages_is_a_store_that_works() {
    let scenario = Scenario::start().await;
    scenario.send("twice", "billing", 3_600).await;
    for _ in 0..300 {
        let other = Message::new("another body").id(MessageId::new("twice").unwrap());
        let refused = scenario.delivery.send("billing", other, Due::NOW).await;
        assert!(matches!(refused, Err(SendError::Store(_))), "{refused:?}");
        scenario.pass(1.0).await;
    }
    assert_eq!(scenario.delivery.tripped_breakers(), []);
    assert_eq!(scenario.log.count("BreakerTripped"), 0);
}
