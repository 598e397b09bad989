//! Scheduling within somebody else's transaction, from Rust and from SQL.

use std::time::Duration;

use postdate_core::{Backend, DelayedMessageStoreExt, Due, EndpointName, Headers, StoreErrorKind};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::place::{Place, endpoint, message, store};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_message_is_scheduled_if_and_only_if_the_callers_transaction_commits() {
    let place = Place::new();
    let backend = place.open().await;
    let store = store(&backend).await;
    let mut connection = place.connection().await;
    let [kept, lost] = [message("kept", Due::after(HOUR)), message("lost", Due::after(HOUR))];

    let mut transaction = connection.begin().await.unwrap();
    backend.store_in(&mut transaction, &endpoint(), std::slice::from_ref(&lost)).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(store.get(&lost.message.id).await.unwrap().is_none());

    let mut transaction = connection.begin().await.unwrap();
    let dues = backend.store_in(&mut transaction, &endpoint(), std::slice::from_ref(&kept)).await.unwrap();
    assert!(store.get(&kept.message.id).await.unwrap().is_none(), "it is there before the commit");
    transaction.commit().await.unwrap();
    assert_eq!(store.get(&kept.message.id).await.unwrap().unwrap().message.due, dues[0]);
}

#[tokio::test]
async fn after_a_conflict_nothing_of_the_call_is_stored_and_the_transaction_goes_on() {
    let place = Place::new();
    let backend = place.open().await;
    let store = store(&backend).await;
    store.store_one(message("there", Due::after(HOUR))).await.unwrap();
    let mut connection = place.connection().await;
    let mut transaction = connection.begin().await.unwrap();
    let mut other = message("there", Due::after(HOUR));
    other.message.body = "another".into();
    let batch = [message("new", Due::after(HOUR)), other, message("newer", Due::after(HOUR))];
    let error = backend.store_in(&mut transaction, &endpoint(), &batch).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}");
    let same = [message("there", Due::after(2 * HOUR)), message("last", Due::after(HOUR))];
    backend.store_in(&mut transaction, &endpoint(), &same).await.unwrap();
    transaction.commit().await.unwrap();
    let ids = "SELECT count(*) FROM $schema.message WHERE id IN ('there', 'last')";
    assert_eq!(place.number(ids).await, 2);
    assert_eq!(place.number("SELECT count(*) FROM $schema.message").await, 2);
}

#[tokio::test]
async fn the_commit_wakes_whoever_dispatches() {
    let place = Place::new();
    let backend = place.open().await;
    let store = store(&backend).await;
    let mut connection = place.connection().await;
    // Listening begins with the first wait, and tells that it has.
    store.changed().await;
    for is_from_sql in [false, true] {
        assert!(store.next_due(&[]).await.unwrap().due.is_none());
        let mut transaction = connection.begin().await.unwrap();
        if is_from_sql {
            schedule(&place, &mut transaction, "'orders', 'billing', 'x'").await.unwrap();
        } else {
            backend.store_in(&mut transaction, &endpoint(), &[message("m", Due::NOW)]).await.unwrap();
        }
        let early = tokio::time::timeout(Duration::from_millis(100), store.changed()).await;
        assert!(early.is_err(), "woken before the commit");
        transaction.commit().await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), store.changed()).await.expect("woken by the commit");
        let batch = store.fetch(std::num::NonZeroUsize::MIN).await.unwrap();
        let ids: Vec<_> = batch.messages.iter().map(|due| due.message.id.clone()).collect();
        let mut claim = batch.claim;
        assert_eq!(claim.remove(&ids).await.unwrap(), [true]);
        claim.commit().await.unwrap();
    }
}

#[tokio::test]
async fn sql_schedules_what_rust_delivers_byte_for_byte() {
    let place = Place::new();
    let store = place.store().await;
    let mut connection = place.connection().await;
    let call = r#"'orders', 'billing', '\x00ff', '2040-01-01T00:00:00Z', '{"tenant": "o''clock", "ü": "\"\\"}', 'mine'"#;
    let id = schedule(&place, &mut connection, call).await.unwrap();
    assert_eq!(id, "mine");
    let stored = store.get(&message("mine", Due::NOW).message.id).await.unwrap().unwrap();
    assert_eq!(stored.message.due, "2040-01-01T00:00:00Z".parse().unwrap());
    let sent = stored.message.message;
    assert_eq!((sent.destination.as_str(), &sent.body[..]), ("billing", &b"\x00\xff"[..]));
    let headers: Headers = [("tenant", "o'clock"), ("ü", "\"\\")].into_iter().collect();
    let read = sent.headers.decode().unwrap();
    for (key, value) in headers.iter() {
        assert_eq!(read.get(key), Some(value));
    }
    // Again, and with other content.
    assert_eq!(schedule(&place, &mut connection, call).await.unwrap(), "mine");
    let conflict = schedule(&place, &mut connection, &call.replace("00ff", "01ff")).await.unwrap_err();
    assert!(conflict.to_string().contains("there already with different content"), "{conflict}");
}

#[tokio::test]
async fn sql_with_a_delay_or_none_can_be_repeated() {
    let place = Place::new();
    let store = place.store().await;
    let mut connection = place.connection().await;
    for call in
        ["'orders', 'billing', 'x', id => 'now'", "'orders', 'billing', 'x', id => 'later', delay => '1 h'"]
    {
        for _ in 0..2 {
            schedule(&place, &mut connection, call).await.unwrap();
        }
    }
    assert_eq!(store.stats().await.unwrap().pending, 2);
}

#[tokio::test]
async fn sql_that_makes_no_sense_is_refused_with_what_is_wrong() {
    let place = Place::new();
    let store = place.store().await;
    let mut connection = place.connection().await;
    for (call, words) in [
        ("'nobody', 'billing', 'x'", "has not been set up"),
        ("'orders', '', 'x'", "1 to 200 characters"),
        ("'orders', E'a\\nb', 'x'", "1 to 200 characters"),
        ("'orders', NULL, 'x'", "1 to 200 characters"),
        ("'orders', 'billing', 'x', id => repeat('x', 251)", "1 to 250 characters"),
        ("'orders', 'billing', 'x', headers => '[]'", "one JSON object of strings"),
        ("'orders', 'billing', 'x', headers => '{\"a\": 1}'", "one JSON object of strings"),
        ("'orders', 'billing', 'x', due => 'infinity'", "beyond the end of time"),
        ("'orders', 'billing', 'x', due => now(), delay => '1 h'", "not both"),
        ("'orders', 'billing', convert_to(repeat('x', 33554433), 'UTF8')", "larger than 32 MiB"),
    ] {
        let error = schedule(&place, &mut connection, call).await.unwrap_err().to_string();
        assert!(error.contains(words), "{call}: {error}");
    }
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn storing_for_an_endpoint_that_was_not_set_up_is_refused() {
    let place = Place::new();
    let backend = place.open().await;
    let mut connection = place.connection().await;
    for is_set_up in [false, true] {
        let nobody = EndpointName::new("nobody").unwrap();
        let error = backend.store_in(&mut connection, &nobody, &[message("m", Due::NOW)]).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotSetUp);
        if !is_set_up {
            backend.set_up(&endpoint()).await.unwrap();
        }
    }
}

async fn schedule(place: &Place, connection: &mut PgConnection, arguments: &str) -> sqlx::Result<String> {
    let call = place.named(&format!("SELECT $schema.schedule({arguments})"));
    sqlx::query_scalar(AssertSqlSafe(call)).fetch_one(connection).await
}
