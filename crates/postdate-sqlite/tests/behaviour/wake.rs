//! Waking: by own commits where there is reason, by those of others, and never for nothing.

use std::time::{Duration, Instant};

use crate::place::{Place, Store, address, delayed, eventually, id, limit, message, outgoing};
use futures::FutureExt;
use jiff::Timestamp;
use postdate_core::{Clock, DelayedMessageStoreExt, Due, Failure, Queues, Selection};

fn seconds(count: u64) -> Due {
    Due::after(Duration::from_secs(count))
}

/// A store that waits for a message in an hour.
async fn waiting(place: &Place) -> Store {
    let store = place.store().await;
    store.store_one(delayed("hour", seconds(3_600))).await.unwrap();
    store.next_due(&[]).await.unwrap();
    // What was committed before that is told of once, perhaps.
    while store.changed().now_or_never().is_some() {}
    store
}

#[tokio::test]
async fn an_earlier_message_wakes_and_a_later_one_does_not() {
    let place = Place::new();
    let store = waiting(&place).await;
    store.store_one(delayed("later", seconds(3_601))).await.unwrap();
    assert!(store.changed().now_or_never().is_none());
    store.store_one(delayed("earlier", seconds(3_599))).await.unwrap();
    store.changed().await;
}

#[tokio::test]
async fn a_message_for_an_excepted_destination_does_not_wake() {
    let place = Place::new();
    let store = waiting(&place).await;
    store.next_due(&[address("billing")]).await.unwrap();
    store.store_one(message("excepted")).await.unwrap();
    assert!(store.changed().now_or_never().is_none());
    let mut other = message("other");
    other.message.destination = address("shipping");
    store.store(&[message("excepted too"), other]).await.unwrap();
    store.changed().await;
    store.next_due(&[address("shipping")]).await.unwrap();
    store.store_one(delayed("no longer excepted", Due::at(Timestamp::MIN))).await.unwrap();
    store.changed().await;
}

#[tokio::test]
async fn what_others_commit_before_the_first_wait_is_not_missed() {
    let place = Place::new();
    let (store, other) = (place.store().await, place.store().await);
    assert_eq!(store.next_due(&[]).await.unwrap().due, None);
    other.store_one(delayed("earlier", seconds(1))).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), store.changed()).await.unwrap();
}

#[tokio::test]
async fn rescheduling_retrying_and_giving_back_wake() {
    let place = Place::new();
    let store = waiting(&place).await;
    store.reschedule(&id("hour"), Due::NOW).await.unwrap();
    store.changed().await;

    let mut batch = store.fetch(limit(1)).await.unwrap();
    assert_eq!(store.next_due(&[]).await.unwrap().due, None);
    let failure = Failure { id: id("hour"), retry_after: Duration::from_secs(5), error: "no".into() };
    batch.claim.increment_failure_count(&[failure]).await.unwrap();
    store.changed().await;

    place.clock.advance(Duration::from_secs(5));
    let batch = store.fetch(limit(1)).await.unwrap();
    assert_eq!(batch.messages.len(), 1);
    assert_eq!(store.next_due(&[]).await.unwrap().due, None);
    drop(batch);
    store.changed().await;
}

#[tokio::test]
async fn a_store_whose_caller_went_away_still_wakes() {
    let place = Place::new();
    let store = waiting(&place).await;
    let mut round = 0;
    eventually("an abandoned store is committed", || {
        round += 1;
        let (store, name) = (store.clone(), format!("m{round}"));
        async move {
            drop(futures::future::poll_immediate(store.store(&[message(&name)])).await);
            store.store_one(delayed("probe", seconds(9_999))).await.unwrap();
            let stored = store.stats().await.unwrap().overdue > 0;
            assert_eq!(store.changed().now_or_never().is_some(), stored);
            stored
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_file_object_stores_wakes_within_100_ms() {
    let place = Place::new();
    let store = waiting(&place).await;
    let other = place.store().await;
    let mut quickest = Duration::MAX;
    for n in 0..5 {
        store.next_due(&[]).await.unwrap();
        while store.changed().now_or_never().is_some() {}
        other.store_one(message(&format!("m{n}"))).await.unwrap();
        let committed = Instant::now();
        tokio::time::timeout(Duration::from_secs(10), store.changed()).await.unwrap();
        quickest = quickest.min(committed.elapsed());
    }
    assert!(quickest < Duration::from_millis(100), "the quickest of five took {quickest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_file_object_sends_wakes_a_receiver() {
    let place = Place::new();
    let (here, there) = (place.open().await, place.open().await);
    here.queues().create(&address("billing")).await.unwrap();
    let receiver = here.queues().receiver(&address("billing")).await.unwrap();
    let next = Selection::Next(limit(1));
    assert!(receiver.try_receive(&next).await.unwrap().messages.is_empty());
    while receiver.changed().now_or_never().is_some() {}
    there.queues().dispatcher().dispatch(&[outgoing("billing", "a")], None).await.remove(0).unwrap();
    tokio::time::timeout(Duration::from_secs(10), receiver.changed()).await.unwrap();
    assert_eq!(receiver.try_receive(&next).await.unwrap().messages.len(), 1);
}

#[tokio::test]
async fn a_store_that_waits_is_left_alone_by_its_own_commits() {
    let place = Place::new();
    let store = waiting(&place).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.changed().await }
    });
    for n in 0..200 {
        let due = Due::at(place.clock.now() + Duration::from_secs(4_000 + n));
        store.store_one(delayed(&format!("m{n}"), due)).await.unwrap();
    }
    assert!(!waiting.is_finished());
    store.store_one(message("now")).await.unwrap();
    waiting.await.unwrap();
}
