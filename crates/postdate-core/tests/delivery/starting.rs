//! How delivery begins, and in which mode.

use std::{sync::Arc, time::Duration};

use postdate_core::{
    Address, DelayedDelivery, Due, Memory, Message, Queues as _, Selection, Settings, StartError,
    TransactionMode,
};

use crate::scenario::{Destinations, ToDestinations};

fn elsewhere() -> ToDestinations {
    ToDestinations(Arc::<Destinations>::default())
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_or_makes_no_sense_is_named() {
    let named = async |builder: postdate_core::Builder| builder.start().await.unwrap_err().to_string();
    assert!(named(DelayedDelivery::builder("orders")).await.contains("no store"));
    assert!(named(DelayedDelivery::builder("orders").store(Memory::new())).await.contains("no dispatcher"));
    let complete = || DelayedDelivery::builder("").store(Memory::new()).dispatcher(elsewhere());
    assert!(named(complete()).await.contains("endpoint name"));
    let mut settings = Settings::default();
    settings.longest_wait = Duration::from_secs(86_400);
    let builder = DelayedDelivery::builder("orders").store(Memory::new()).dispatcher(elsewhere());
    assert!(named(builder.settings(settings)).await.contains("longest_wait"));
}

#[tokio::test(start_paused = true)]
async fn exactly_once_is_chosen_where_it_is_proved_and_refused_where_it_is_not() {
    let memory = Memory::new();
    let shared =
        DelayedDelivery::builder("orders").store(memory.clone()).dispatcher(memory.queues().dispatcher());
    assert_eq!(shared.start().await.unwrap().mode(), TransactionMode::TransactionScope);

    let apart = || DelayedDelivery::builder("orders").store(Memory::new()).dispatcher(elsewhere());
    assert_eq!(apart().start().await.unwrap().mode(), TransactionMode::SendsAtomicWithReceive);
    let refused = apart().transaction_mode(TransactionMode::TransactionScope).start().await.unwrap_err();
    assert!(matches!(refused, StartError::NotShared(_)), "{refused}");
    assert!(refused.to_string().contains("not in the same database"), "{refused}");

    let errors_apart = DelayedDelivery::builder("orders")
        .store(memory.clone())
        .dispatcher(memory.queues().dispatcher())
        .error_dispatcher(elsewhere());
    assert_eq!(errors_apart.start().await.unwrap().mode(), TransactionMode::SendsAtomicWithReceive);
}

#[tokio::test(start_paused = true)]
async fn in_one_transaction_messages_arrive_and_the_missing_destination_is_told() {
    let memory = Memory::new();
    let queues = memory.queues();
    for name in ["billing", "error"] {
        queues.create(&Address::new(name).unwrap()).await.unwrap();
    }
    let delivery = DelayedDelivery::builder("orders")
        .store(memory.clone())
        .dispatcher(queues.dispatcher())
        .start()
        .await
        .unwrap();
    for destination in ["billing", "nowhere"] {
        delivery.send(destination, Message::new("x"), Due::NOW).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for name in ["billing", "error"] {
        let receiver = queues.receiver(&Address::new(name).unwrap()).await.unwrap();
        let next = Selection::Next(std::num::NonZeroUsize::new(10).unwrap());
        assert_eq!(receiver.try_receive(&next).await.unwrap().messages.len(), 1, "{name}");
    }
    assert_eq!(delivery.stats().await.unwrap().pending, 0);
}
