//! A message for a queue that does not exist, and its way back.

use std::sync::Arc;

use postdate::{
    Backend, DelayedDelivery, DelayedMessage, Due, Message, Queues, TransactionMode, error_queue,
};

use crate::scene::{Diary, Scene, address, all_settled, id, receive};

#[tokio::test]
async fn a_message_without_a_destination_waits_in_the_error_queue_and_can_be_sent_again() {
    let scene = Scene::new();
    let sqlite = scene.open_with(&["error", "billing"]).await;
    let diary = Arc::new(Diary::default());
    let delivery = DelayedDelivery::builder("orders")
        .store(sqlite.clone())
        .dispatcher(sqlite.queues().dispatcher())
        .number_of_retries(3)
        .observer(diary.clone())
        .start()
        .await
        .unwrap();
    assert_eq!(delivery.mode(), TransactionMode::TransactionScope);

    let message = Message::new("an invoice").header("tenant", "acme").id(id("invoice-1"));
    delivery.send("no-such-queue", message, Due::NOW).await.unwrap();
    delivery.send("billing", Message::new("beside it").id(id("invoice-2")), Due::NOW).await.unwrap();
    assert_eq!(receive(&sqlite, "billing").await.message.id, id("invoice-2"));
    let in_error_queue = receive(&sqlite, "error").await;
    assert_eq!(diary.count("no destination"), 1);
    assert_eq!(diary.count("attempt failed"), 0, "trying again is of no use");

    let failed = error_queue::restore(&in_error_queue.message).unwrap();
    assert_eq!(failed.reason, "no-destination");
    assert_eq!(failed.original.destination, address("no-such-queue"));
    assert!(failed.error.contains("no-such-queue"), "{}", failed.error);

    sqlite.queues().create(&address("no-such-queue")).await.unwrap();
    let again = DelayedMessage { message: failed.original, due: Due::NOW };
    delivery.send_batch(&[again]).await.unwrap();
    let arrived = receive(&sqlite, "no-such-queue").await.message;
    assert_eq!((arrived.id, &arrived.body[..]), (id("invoice-1"), &b"an invoice"[..]));
    let headers = arrived.headers.decode().unwrap();
    assert_eq!(headers.iter().collect::<Vec<_>>(), [("tenant", "acme")]);
    all_settled(&delivery).await;
    delivery.stop().await;
}

#[tokio::test]
async fn the_largest_message_fits_into_the_error_queue_with_its_story() {
    let scene = Scene::new();
    let sqlite = scene.open_with(&["error"]).await;
    let largest = vec![7_u8; sqlite.capabilities().max_message_bytes];
    let delivery = DelayedDelivery::builder("orders")
        .store(sqlite.clone())
        .dispatcher(sqlite.queues().dispatcher())
        .start()
        .await
        .unwrap();
    delivery.send("no-such-queue", Message::new(largest.clone()), Due::NOW).await.unwrap();
    let failed = error_queue::restore(&receive(&sqlite, "error").await.message).unwrap();
    assert_eq!(failed.original.body, largest);
    all_settled(&delivery).await;
    delivery.stop().await;
}
