//! Waking other processes.

use std::{num::NonZeroUsize, time::Duration};

use postdate_core::{DelayedMessageStoreExt, Due};
use tokio::time::timeout;

use crate::place::{Place, message, store, until};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn another_process_is_woken_by_a_commit_and_not_by_what_is_due_later_than_it_waits_for() {
    let place = Place::new();
    let (store, other) = (place.store().await, place.store().await);
    timeout(SOON, other.changed()).await.expect("listening begins, which is a reason to look");
    store.store_one(message("first", Due::after(Duration::from_secs(20)))).await.unwrap();
    timeout(SOON, other.changed()).await.expect("there was nothing to wait for");
    other.next_due(&[]).await.unwrap();
    store.store_one(message("later", Due::after(Duration::from_secs(30)))).await.unwrap();
    // Told of after an eighth of the delay, and at the latest a second later.
    assert!(
        timeout(Duration::from_millis(1_500), other.changed()).await.is_err(),
        "it waits for the first one"
    );
    store.store_one(message("now", Due::NOW)).await.unwrap();
    timeout(SOON, other.changed()).await.expect("this one is due");
    assert_eq!(other.fetch(NonZeroUsize::MIN).await.unwrap().messages.len(), 1);
}

#[tokio::test]
async fn what_is_due_in_an_hour_is_told_to_nobody() {
    let place = Place::new();
    let (store, other) = (place.store().await, place.store().await);
    timeout(SOON, other.changed()).await.unwrap();
    store.store_one(message("m", Due::after(Duration::from_secs(3_600)))).await.unwrap();
    assert!(timeout(Duration::from_millis(1_500), other.changed()).await.is_err());
}

#[tokio::test]
async fn a_rescheduling_wakes_another_process() {
    let place = Place::new();
    let (store, other) = (place.store().await, place.store().await);
    timeout(SOON, other.changed()).await.unwrap();
    store.store_one(message("m", Due::after(Duration::from_secs(3_600)))).await.unwrap();
    store.reschedule(&message("m", Due::NOW).message.id, Due::NOW).await.unwrap();
    timeout(SOON, other.changed()).await.expect("it is due now");
}

#[tokio::test]
async fn who_lost_the_connection_listens_again_and_looks() {
    let place = Place::new();
    let (store, other) = (place.store().await, store(&place.open_marked().await).await);
    timeout(SOON, other.changed()).await.unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = '$schema' AND query LIKE 'LISTEN%'";
    assert_eq!(place.number(end).await, 1);
    timeout(SOON, other.changed()).await.expect("something may have happened meanwhile");
    until("another notification", async || {
        store.store_one(message(&uuid::Uuid::now_v7().to_string(), Due::NOW)).await.unwrap();
        timeout(Duration::from_millis(500), other.changed()).await.is_ok()
    })
    .await;
}
