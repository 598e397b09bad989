//! Storing: once, all or none, in groups.

use std::time::Duration;

use crate::place::{Place, address, delayed, id, limit, message};
use futures::future::{join_all, poll_immediate};
use jiff::Timestamp;
use postdate_core::{DelayedMessageStoreExt, Due, EndpointName, StoreErrorKind, TransactionMode};

#[tokio::test]
async fn the_same_message_again_is_fine_and_changes_nothing() {
    let place = Place::new();
    let store = place.store().await;
    let due = store.store_one(delayed("a", Due::after(Duration::from_secs(60)))).await.unwrap();
    place.clock.advance(Duration::from_secs(1));
    let again = store.store_one(delayed("a", Due::after(Duration::from_secs(60)))).await.unwrap();
    assert_eq!(due, again, "relative due times are not compared");
    assert_eq!(store.stats().await.unwrap().pending, 1);
}

#[tokio::test]
async fn the_same_message_after_it_was_rescheduled_is_no_conflict() {
    let place = Place::new();
    let store = place.store().await;
    let due = Due::at("2030-01-01T00:00:00Z".parse().unwrap());
    store.store_one(delayed("a", due)).await.unwrap();
    store.reschedule(&id("a"), Due::at("2031-01-01T00:00:00Z".parse().unwrap())).await.unwrap();
    let stored = store.store_one(delayed("a", due)).await.unwrap();
    assert_eq!(stored.to_string(), "2031-01-01T00:00:00Z");
}

#[tokio::test]
async fn other_content_under_the_same_id_is_a_conflict() {
    let place = Place::new();
    let store = place.store().await;
    let due = |text: &str| Due::at(text.parse().unwrap());
    let first = delayed("a", due("2030-01-01T00:00:00Z"));
    store.store_one(first.clone()).await.unwrap();
    let mut others = vec![first.clone(); 4];
    others[0].message.body = "other".into();
    others[1].message.headers = delayed("b", first.due).message.headers;
    others[2].message.destination = address("elsewhere");
    others[3].due = due("2030-01-01T00:00:01Z");
    for other in others {
        let error = store.store_one(other).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Conflict);
        assert!(error.to_string().contains("choose another id"), "{error}");
    }
}

#[tokio::test]
async fn a_conflict_in_a_batch_stores_nothing_of_it_and_spares_its_neighbours() {
    let place = Place::new();
    let store = place.store().await;
    store.store_one(message("taken")).await.unwrap();
    let mut conflict = message("taken");
    conflict.message.body = "other".into();
    let bad = [message("x"), message("y"), conflict];
    let good: Vec<_> = (0..20).map(|n| [message(&format!("good {n}"))]).collect();
    let (bad, good) =
        futures::future::join(store.store(&bad), join_all(good.iter().map(|batch| store.store(batch)))).await;
    assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::Conflict);
    good.into_iter().for_each(|stored| drop(stored.unwrap()));
    assert_eq!(store.get(&id("x")).await.unwrap(), None);
    assert_eq!(store.stats().await.unwrap().pending, 21);
}

#[tokio::test]
async fn a_dropped_store_happened_as_a_whole_or_not_at_all() {
    let place = Place::new();
    let store = place.store().await;
    for round in 0..200 {
        let batch: Vec<_> = (0..3).map(|n| message(&format!("{round}-{n}"))).collect();
        drop(poll_immediate(store.store(&batch)).await);
    }
    store.store_one(message("last")).await.unwrap();
    assert_eq!((store.stats().await.unwrap().pending - 1) % 3, 0);
    let again: Vec<_> = (0..3).map(|n| message(&format!("0-{n}"))).collect();
    store.store(&again).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused_before_anything_is_stored() {
    let place = Place::new();
    let store = place.store().await;
    let mut large = message("large");
    large.message.body = vec![0; 32 << 20].into();
    let endless = delayed("endless", Due::after(Duration::MAX));
    for (bad, kind) in [(large, StoreErrorKind::TooLarge), (endless, StoreErrorKind::Invalid)] {
        let error = store.store(&[message("first"), bad]).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn extreme_due_times_are_kept() {
    let place = Place::new();
    let store = place.store().await;
    for (name, due) in [("first", Timestamp::MIN), ("last", Timestamp::MAX)] {
        assert_eq!(store.store_one(delayed(name, Due::at(due))).await.unwrap(), due);
    }
    let batch = store.fetch(limit(10)).await.unwrap();
    assert_eq!(batch.messages.len(), 1);
    assert_eq!(batch.messages[0].due, Timestamp::MIN);
    assert_eq!(store.next_due(&[]).await.unwrap().due, Some(Timestamp::MAX));
}

#[tokio::test]
async fn eight_file_objects_set_up_at_once() {
    let place = Place::new();
    let stores = join_all((0..8).map(|_| place.store())).await;
    for (n, store) in stores.iter().enumerate() {
        store.store_one(message(&format!("{n}"))).await.unwrap();
    }
    assert_eq!(stores[0].stats().await.unwrap().pending, 8);
}

#[tokio::test]
async fn an_endpoint_that_nobody_set_up_is_not_opened() {
    use postdate_core::Backend;
    let place = Place::new();
    let sqlite = place.open().await;
    let open = |name| {
        let sqlite = sqlite.clone();
        async move { sqlite.open(&EndpointName::new(name).unwrap(), TransactionMode::None).await }
    };
    assert_eq!(open("orders").await.unwrap_err().kind(), StoreErrorKind::NotSetUp);
    sqlite.set_up(&EndpointName::new("orders").unwrap()).await.unwrap();
    let error = open("Orders").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotSetUp);
    assert!(error.to_string().contains("`Orders`"), "{error}");
}
