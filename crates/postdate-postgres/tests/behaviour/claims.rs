//! Claims as the server sees them.

use std::{num::NonZeroUsize, time::Duration};

use postdate_core::{
    Backend, Cancellation, DelayedMessageStore, DelayedMessageStoreExt, Due, DueBatch, Failure, MessageId,
    Queues as _, StoreErrorKind, TransactionMode,
};

use postdate_postgres::Postgres;

use crate::place::{Place, endpoint, message, store, until};

const PAST: Due = Due::NOW;

async fn stored(place: &Place, ids: &[&str]) -> std::sync::Arc<dyn DelayedMessageStore> {
    let store = place.store().await;
    let messages: Vec<_> = ids.iter().map(|id| message(id, PAST)).collect();
    store.store(&messages).await.unwrap();
    store
}

async fn fetch(store: &dyn DelayedMessageStore, limit: usize) -> DueBatch {
    store.fetch(NonZeroUsize::new(limit).unwrap()).await.unwrap()
}

fn ids(batch: &DueBatch) -> Vec<MessageId> {
    batch.messages.iter().map(|due| due.message.id.clone()).collect()
}

/// Ends the sessions of this schema that are in a transaction; how many those were.
const TERMINATE: &str = "
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '$schema'
    AND state = 'idle in transaction'";

#[tokio::test]
async fn a_claim_whose_session_was_ended_is_lost_and_says_so() {
    let place = Place::new();
    let backend = place.open_marked().await;
    for mode in [TransactionMode::ReceiveOnly, TransactionMode::TransactionScope] {
        backend.set_up(&endpoint()).await.unwrap();
        let store = backend.open(&endpoint(), mode).await.unwrap();
        store.store(&[message("a", PAST), message("b", PAST)]).await.unwrap();
        let mut batch = fetch(&*store, 2).await;
        let both = ids(&batch);
        assert_eq!(batch.claim.remove(&both[..1]).await.unwrap(), [true]);
        assert_eq!(place.number(TERMINATE).await, 1);
        let error = batch.claim.commit().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::ClaimLost, "{error}");
        let mut again = fetch(&*store, 5).await;
        assert_eq!(ids(&again), both, "both are there and free");
        assert!(again.messages.iter().all(|due| due.failures == 0));
        assert_eq!(again.claim.remove(&both).await.unwrap(), [true, true]);
        again.claim.commit().await.unwrap();
    }
}

#[tokio::test]
async fn renewing_keeps_the_servers_time_out_away_and_notices_a_lost_session() {
    let place = Place::new();
    let backend = place.open_marked().await;
    let store = store(&backend).await;
    store.store(&[message("a", PAST)]).await.unwrap();
    let mut batch = fetch(&*store, 1).await;
    let first = batch.claim.expires().unwrap();
    batch.claim.renew().await.unwrap();
    assert!(batch.claim.expires().unwrap() > first);
    assert_eq!(place.number(TERMINATE).await, 1);
    let error = batch.claim.renew().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost, "{error}");
    let error = batch.claim.remove(&[message("a", PAST).message.id]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost, "{error}");
}

#[tokio::test]
async fn a_frozen_dispatcher_loses_its_messages_by_the_servers_time_out() {
    let place = Place::new();
    let limit = Duration::from_secs(1);
    let backend = Postgres::with_options(place.options().claim_limit(limit)).await.unwrap();
    let store = store(&backend).await;
    store.store(&[message("a", PAST)]).await.unwrap();
    let begun = std::time::Instant::now();
    let mut frozen = fetch(&*store, 1).await;
    assert!(frozen.claim.expires().unwrap() >= begun + limit);
    let other = place.store().await;
    until("the message to be free", async || !fetch(&*other, 1).await.messages.is_empty()).await;
    assert!(begun.elapsed() >= limit);
    let error = match frozen.claim.remove(&[message("a", PAST).message.id]).await {
        Ok(_) => frozen.claim.commit().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost, "{error}");
    assert_eq!(fetch(&*other, 1).await.messages.len(), 1);
}

#[tokio::test]
async fn dropping_a_claim_commits_what_it_settled_and_frees_the_rest() {
    let place = Place::new();
    let store = stored(&place, &["a", "b", "c"]).await;
    let mut batch = fetch(&*store, 3).await;
    let three = ids(&batch);
    assert_eq!(batch.claim.remove(&three[..1]).await.unwrap(), [true]);
    let failure =
        Failure { id: three[1].clone(), retry_after: Duration::ZERO, error: "no\0 answer".to_owned() };
    assert_eq!(batch.claim.increment_failure_count(&[failure]).await.unwrap(), [true]);
    assert_eq!(place.number("SELECT count(*) FROM $schema.message").await, 3, "not yet");
    drop(batch);
    until("the removal", async || place.number("SELECT count(*) FROM $schema.message").await == 2).await;
    let failed = store.get(&three[1]).await.unwrap().unwrap();
    assert_eq!((failed.message.failures, failed.last_error.as_deref()), (1, Some("no answer")));
    assert_eq!(fetch(&*store, 3).await.messages.len(), 2);
}

#[tokio::test]
async fn a_claim_that_is_dropped_without_a_runtime_frees_everything() {
    let place = Place::new();
    let store = stored(&place, &["a"]).await;
    let batch = fetch(&*store, 1).await;
    std::thread::spawn(move || drop(batch)).join().unwrap();
    until("the message to be free", async || !fetch(&*store, 1).await.messages.is_empty()).await;
}

#[tokio::test]
async fn of_two_who_cancel_one_is_told_that_it_did_and_nobody_that_it_is_on_its_way() {
    let place = Place::new();
    let (store, other) = (place.store().await, place.store().await);
    for i in 0..200 {
        let id = format!("m{i}");
        let id =
            store.store(&[message(&id, Due::after(Duration::from_secs(3_600)))]).await.map(|_| id).unwrap();
        let one = [message(&id, PAST).message.id];
        let (first, second) = tokio::join!(store.cancel(&one), other.cancel(&one));
        let mut answers = [first.unwrap()[0], second.unwrap()[0]];
        answers.sort_by_key(|answer| *answer != Cancellation::Cancelled);
        assert_eq!(answers, [Cancellation::Cancelled, Cancellation::NotFound]);
    }
}

#[tokio::test]
async fn looking_does_not_keep_a_message_from_being_cancelled() {
    let place = Place::new();
    let store = stored(&place, &["a"]).await;
    // What `next_due`, `get` and `list` do, for as long as this transaction lasts.
    let mut connection = place.connection().await;
    let looks = place.named("BEGIN; SELECT 1 FROM $schema.message FOR KEY SHARE SKIP LOCKED");
    sqlx::raw_sql(sqlx::AssertSqlSafe(looks)).execute(&mut connection).await.unwrap();
    let one = [message("a", PAST).message.id];
    let cancelled = tokio::time::timeout(Duration::from_millis(200), store.cancel(&one)).await;
    assert!(cancelled.is_err(), "it waits for the end of the look");
    sqlx::raw_sql("COMMIT").execute(&mut connection).await.unwrap();
    until("the end of it", async || store.cancel(&one).await.unwrap() != [Cancellation::InFlight]).await;
    assert!(store.get(&one[0]).await.unwrap().is_none());
}

#[tokio::test]
async fn nobody_holds_what_was_too_large_to_come_along() {
    let place = Place::new();
    let (store, other) = (place.store().await, place.store().await);
    for i in 0..40 {
        let mut large = message(&format!("m{i:02}"), PAST);
        large.message.body = vec![0x5a; 1 << 20].into();
        store.store(&[large]).await.unwrap();
    }
    let (first, second) = (fetch(&*store, 40).await, fetch(&*other, 40).await);
    assert!((10..20).contains(&first.messages.len()), "{}", first.messages.len());
    assert!((10..20).contains(&second.messages.len()), "{}", second.messages.len());
    let last = [message("m39", PAST).message.id];
    assert_eq!(store.cancel(&last).await.unwrap(), [Cancellation::Cancelled]);
}

#[tokio::test]
async fn no_debug_output_shows_the_password() {
    let place = Place::new();
    let options = place.options();
    let said = format!("{options:?}");
    let backend = Postgres::with_options(options).await.unwrap();
    let store = store(&backend).await;
    store.store(&[message("a", PAST)]).await.unwrap();
    let batch = fetch(&*store, 1).await;
    let queues = backend.queues();
    let said = format!("{said} {backend:?} {store:?} {batch:?} {queues:?} {:?}", queues.dispatcher());
    let url: String = test_postgres::url();
    let password = url.split([':', '@']).nth(2).unwrap();
    assert!(password.len() > 8 && !said.contains(password), "it is in there");
}

#[tokio::test]
async fn what_is_given_back_wakes_another_process() {
    let place = Place::new();
    let (store, other) = (stored(&place, &["a"]).await, place.store().await);
    other.changed().await;
    let batch = fetch(&*store, 1).await;
    let nothing = fetch(&*other, 1).await;
    assert!(nothing.messages.is_empty() && nothing.contended);
    assert!(other.next_due(&[]).await.unwrap().due.is_none());
    drop(batch);
    tokio::time::timeout(Duration::from_secs(5), other.changed()).await.expect("told");
    assert_eq!(fetch(&*other, 1).await.messages.len(), 1);
}
