//! Sending and removing as one.

use std::{sync::Arc, time::Duration};

use crate::place::{Place, Store, address, id, limit, message, orders, outgoing};
use postdate_core::{
    DelayedMessageStoreExt, Dispatcher, Failure, Queues as _, StoreErrorKind, TransactionMode,
};
use postdate_sqlite::{Queues, Sqlite};

/// Two due messages, a queue `billing`, and its dispatcher in a file object of its own.
async fn scene(place: &Place) -> (Sqlite, Store, Arc<dyn Dispatcher>) {
    let sqlite = place.open().await;
    let store = orders(&sqlite, TransactionMode::TransactionScope).await;
    store.store(&[message("a"), message("b")]).await.unwrap();
    sqlite.queues().create(&address("billing")).await.unwrap();
    let elsewhere = Queues::open(place.path()).await.unwrap();
    (sqlite, store, elsewhere.dispatcher())
}

async fn depth(sqlite: &Sqlite) -> u64 {
    sqlite.queues().list().await.unwrap()[0].depth
}

#[tokio::test]
async fn a_batch_is_sent_and_removed_when_the_claim_is_committed_and_not_before() {
    let place = Place::new();
    let (sqlite, store, dispatcher) = scene(&place).await;
    let mut batch = store.fetch(limit(9)).await.unwrap();
    assert!(dispatcher.joins(batch.claim.enlist().unwrap()).await.unwrap());
    let sends: Vec<_> = batch.messages.iter().map(|due| due.message.clone()).collect();
    for outcome in dispatcher.dispatch(&sends, batch.claim.enlist()).await {
        outcome.unwrap();
    }
    assert_eq!(batch.claim.remove(&[id("a"), id("b"), id("a")]).await.unwrap(), [true, true, false]);
    assert_eq!(depth(&sqlite).await, 0);
    assert_eq!(store.stats().await.unwrap().pending, 2);
    batch.claim.commit().await.unwrap();
    assert_eq!(depth(&sqlite).await, 2);
    assert_eq!(store.stats().await.unwrap().pending, 0);
    assert_eq!(store.stats().await.unwrap().in_flight, 0);
}

#[tokio::test]
async fn a_claim_that_is_dropped_has_sent_and_removed_nothing() {
    let place = Place::new();
    let (sqlite, store, dispatcher) = scene(&place).await;
    let mut batch = store.fetch(limit(9)).await.unwrap();
    dispatcher.dispatch(&[batch.messages[0].message.clone()], batch.claim.enlist()).await.remove(0).unwrap();
    batch.claim.remove(&[id("a")]).await.unwrap();
    let failure = Failure { id: id("b"), retry_after: Duration::from_secs(9), error: "no".into() };
    assert_eq!(batch.claim.increment_failure_count(&[failure]).await.unwrap(), [true]);
    drop(batch);
    assert_eq!(depth(&sqlite).await, 0);
    let again = store.fetch(limit(9)).await.unwrap();
    assert_eq!(again.messages.len(), 2);
    assert!(again.messages.iter().all(|message| message.failures == 0));
}

#[tokio::test]
async fn failures_are_counted_and_the_rest_given_back_by_the_commit() {
    let place = Place::new();
    let (_sqlite, store, _dispatcher) = scene(&place).await;
    let mut batch = store.fetch(limit(9)).await.unwrap();
    let failure = Failure { id: id("a"), retry_after: Duration::from_secs(9), error: "no".into() };
    batch.claim.increment_failure_count(&[failure]).await.unwrap();
    batch.claim.commit().await.unwrap();
    let failed = store.get(&id("a")).await.unwrap().unwrap();
    assert_eq!((failed.message.failures, failed.last_error.as_deref()), (1, Some("no")));
    let again = store.fetch(limit(9)).await.unwrap();
    assert_eq!(again.messages.len(), 1, "b was given back, a waits");
}

#[tokio::test]
async fn if_one_message_of_the_claim_is_gone_nothing_of_it_happens() {
    let place = Place::new();
    let (sqlite, store, dispatcher) = scene(&place).await;
    let mut batch = store.fetch(limit(9)).await.unwrap();
    let sends: Vec<_> = batch.messages.iter().map(|due| due.message.clone()).collect();
    dispatcher.dispatch(&sends, batch.claim.enlist()).await;
    batch.claim.remove(&[id("a"), id("b")]).await.unwrap();
    let raw = rusqlite::Connection::open(place.path()).unwrap();
    raw.execute("DELETE FROM message WHERE id = 'b'", []).unwrap();
    let error = batch.claim.commit().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost);
    assert_eq!(depth(&sqlite).await, 0);
    assert_eq!(store.fetch(limit(9)).await.unwrap().messages.len(), 1, "a is there and free again");
}

#[tokio::test]
async fn a_missing_queue_is_known_before_the_commit() {
    let place = Place::new();
    let (sqlite, store, dispatcher) = scene(&place).await;
    let mut batch = store.fetch(limit(1)).await.unwrap();
    let sends = [outgoing("nowhere", "x"), outgoing("billing", "a")];
    let outcomes = dispatcher.dispatch(&sends, batch.claim.enlist()).await;
    assert!(outcomes[0].is_err() && outcomes[1].is_ok());
    batch.claim.commit().await.unwrap();
    assert_eq!(depth(&sqlite).await, 1);
}

#[tokio::test]
async fn the_queues_of_another_file_do_not_join() {
    let (place, other) = (Place::new(), Place::new());
    let (_sqlite, store, _) = scene(&place).await;
    let (elsewhere, _, foreign) = scene(&other).await;
    let mut batch = store.fetch(limit(1)).await.unwrap();
    assert!(!foreign.joins(batch.claim.enlist().unwrap()).await.unwrap());
    let outcomes = foreign.dispatch(&[outgoing("billing", "a")], batch.claim.enlist()).await;
    assert!(outcomes[0].as_ref().unwrap_err().to_string().contains("not of this file"));
    batch.claim.commit().await.unwrap();
    assert_eq!(depth(&elsewhere).await, 0);
}

#[cfg(unix)]
#[tokio::test]
async fn the_same_file_by_another_path_does_join() {
    let place = Place::new();
    let (_sqlite, store, _) = scene(&place).await;
    let link = place.directory.path().join("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    let dispatcher = Queues::open(link).await.unwrap().dispatcher();
    let mut batch = store.fetch(limit(1)).await.unwrap();
    assert!(dispatcher.joins(batch.claim.enlist().unwrap()).await.unwrap());
}

#[tokio::test]
async fn other_modes_lend_no_transaction() {
    let place = Place::new();
    let (_sqlite, _, _) = scene(&place).await;
    let store = orders(&place.open().await, TransactionMode::SendsAtomicWithReceive).await;
    assert!(store.fetch(limit(1)).await.unwrap().claim.enlist().is_none());
}
