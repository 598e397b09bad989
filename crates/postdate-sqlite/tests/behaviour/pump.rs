//! A pump from a queue of the file into a store of it.

use std::time::Duration;

use postdate_core::{Address, DelayedDelivery, Due, EndpointName, Message, Queues, ReceiverExt, Selection};

use crate::place::{Place, address, id, limit};

fn timeouts() -> Address {
    EndpointName::new("orders").unwrap().timeouts_queue()
}

#[tokio::test]
async fn what_is_handed_to_the_queue_is_delivered_from_the_store() {
    let place = Place::new();
    let sqlite = place.open().await;
    let queues = sqlite.queues();
    for queue in [timeouts(), address("billing"), address("error")] {
        queues.create(&queue).await.unwrap();
    }
    let handed_over =
        Message::new("body").id(id("a")).to(address("billing"), Due::after(Duration::from_secs(60)));
    queues.dispatcher().dispatch(&[handed_over.through(timeouts())], None).await.remove(0).unwrap();
    place.clock.advance(Duration::from_secs(59));
    let delivery = DelayedDelivery::builder("orders")
        .store(sqlite.clone())
        .dispatcher(queues.dispatcher())
        .pump(queues.receiver(&timeouts()).await.unwrap())
        .start()
        .await
        .unwrap();
    let stored = async {
        while delivery.stats().await.unwrap().pending == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        delivery.get(&id("a")).await.unwrap().unwrap()
    };
    let stored = tokio::time::timeout(Duration::from_secs(10), stored).await.unwrap();
    let left = stored.message.due.duration_since(delivery.stats().await.unwrap().now);
    assert!(left.as_millis() <= 1_000 && left.as_millis() >= 0, "it waited in the queue already: {left}");
    place.clock.advance(Duration::from_secs(1));
    let billing = queues.receiver(&address("billing")).await.unwrap();
    let received = tokio::time::timeout(Duration::from_secs(10), billing.receive(limit(1)));
    assert_eq!(received.await.unwrap().unwrap().messages[0].message.body, "body");
    delivery.stop().await;
    assert_eq!(
        queues.list().await.unwrap().iter().map(|queue| queue.depth).sum::<u64>(),
        1,
        "and is held there"
    );
}

#[tokio::test]
async fn a_receive_claim_tells_when_it_was_taken_and_when_it_ends() {
    let place = Place::new();
    let sqlite = place.open().await;
    let queues = sqlite.queues();
    queues.create(&timeouts()).await.unwrap();
    let message = Message::new("body").to(address("billing"), Due::NOW).through(timeouts());
    queues.dispatcher().dispatch(&[message], None).await.remove(0).unwrap();
    place.clock.advance(Duration::from_secs(7));
    let before = std::time::Instant::now();
    let receiver = queues.receiver(&timeouts()).await.unwrap();
    let mut batch = receiver.try_receive(&Selection::Next(limit(1))).await.unwrap();
    let waited = batch.claim.received().unwrap().duration_since(batch.messages[0].enqueued);
    assert_eq!(waited.as_secs(), 7);
    let first = batch.claim.expires().unwrap();
    assert!(
        first >= before + Duration::from_secs(30)
            && first <= std::time::Instant::now() + Duration::from_secs(30)
    );
    batch.claim.renew().await.unwrap();
    assert!(batch.claim.expires().unwrap() > first);
}
