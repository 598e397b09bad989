//! What a batch has settled counts before its end, unless its claim is a transaction.

use postdate_core::{Due, Message, MessageId, Settings};

use crate::scenario::{Behaviour, Scenario, address};

#[tokio::test(start_paused = true)]
async fn a_message_that_failed_is_tried_again_in_time_while_its_batch_hangs() {
    let mut settings = Settings::default();
    settings.slow_after = settings.send_time_limit;
    let scenario = Scenario::with(|builder| builder.settings(settings).number_of_retries(3)).await;
    scenario.destinations.behave("hangs", Behaviour::Hangs);
    scenario.destinations.behave("refuses", Behaviour::Rejects);
    let to = |name| Message::new("x").id(MessageId::new(name).unwrap()).to(address(name), Due::NOW);
    scenario.delivery.send_batch(&[to("hangs"), to("refuses")]).await.unwrap();
    scenario.pass(5.0).await;
    assert_eq!(scenario.destinations.attempts_of("hangs"), 1);
    assert!(scenario.destinations.attempts_of("refuses") > 1);
}
