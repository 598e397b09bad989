//! Claims: one holder, given back when dropped, one dispatching file object.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::place::{Place, Store, address, delayed, eventually, id, limit, message, orders};
use futures::future::{join, poll_immediate};
use postdate_core::{
    Backend, Cancellation, DelayedMessageStoreExt, Due, DueBatch, EndpointName, Failure, FetchDue,
    MessageState, Rescheduling, TransactionMode,
};

fn names(batch: &DueBatch) -> Vec<&str> {
    batch.messages.iter().map(|message| message.message.id.as_str()).collect()
}

async fn filled(place: &Place, count: usize) -> Store {
    let store = place.store().await;
    let batch: Vec<_> = (0..count).map(|n| message(&format!("m{n}"))).collect();
    store.store(&batch).await.unwrap();
    store
}

#[tokio::test]
async fn messages_come_in_order_and_none_twice_until_the_claim_is_dropped() {
    let place = Place::new();
    let store = filled(&place, 5).await;
    let first = store.fetch(limit(2)).await.unwrap();
    let second = store.fetch(limit(9)).await.unwrap();
    assert_eq!(names(&first), ["m0", "m1"]);
    assert_eq!(names(&second), ["m2", "m3", "m4"]);
    assert!(second.contended, "others hold due messages");
    drop(first);
    assert_eq!(names(&store.fetch(limit(9)).await.unwrap()), ["m0", "m1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_sixteen_tasks_each_message_has_one_holder() {
    let place = Place::new();
    let store = filled(&place, 1_000).await;
    let tasks = (0..16).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let mut batch = store.fetch(limit(7)).await.unwrap();
                if batch.messages.is_empty() {
                    return mine;
                }
                let ids: Vec<_> = batch.messages.iter().map(|message| message.message.id.clone()).collect();
                assert_eq!(batch.claim.remove(&ids).await.unwrap(), vec![true; ids.len()]);
                mine.extend(ids);
            }
        })
    });
    let all: Vec<_> =
        futures::future::join_all(tasks).await.into_iter().flat_map(|task| task.unwrap()).collect();
    assert_eq!(all.len(), 1_000);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 1_000);
}

#[tokio::test]
async fn what_a_claim_does_not_hold_it_cannot_settle() {
    let place = Place::new();
    let store = filled(&place, 2).await;
    let mut batch = store.fetch(limit(1)).await.unwrap();
    let ids = [id("m0"), id("m1"), id("m0"), id("none")];
    assert_eq!(batch.claim.remove(&ids).await.unwrap(), [true, false, false, false]);
    let failure = Failure { id: id("m0"), retry_after: Duration::ZERO, error: "late".into() };
    assert_eq!(batch.claim.increment_failure_count(&[failure]).await.unwrap(), [false]);
    assert_eq!(names(&store.fetch(limit(9)).await.unwrap()), ["m1"]);
}

#[tokio::test]
async fn a_failed_message_comes_again_at_its_retry_time_and_not_before() {
    let place = Place::new();
    let store = filled(&place, 1).await;
    let mut batch = store.fetch(limit(1)).await.unwrap();
    let failure = Failure { id: id("m0"), retry_after: Duration::from_secs(5), error: "x".repeat(2_000) };
    assert_eq!(batch.claim.increment_failure_count(&[failure]).await.unwrap(), [true]);
    let next = store.next_due(&[]).await.unwrap();
    assert_eq!(next.wait(), Some(Duration::from_secs(5)));
    place.clock.advance(Duration::from_micros(4_999_999));
    assert!(store.fetch(limit(1)).await.unwrap().messages.is_empty());
    place.clock.advance(Duration::from_micros(1));
    assert_eq!(store.fetch(limit(1)).await.unwrap().messages[0].failures, 1);
    let stored = store.get(&id("m0")).await.unwrap().unwrap();
    assert_eq!(stored.last_error.unwrap().len(), Failure::MAX_ERROR_CHARS);
}

#[tokio::test]
async fn excepted_destinations_are_passed_over() {
    let place = Place::new();
    let store = filled(&place, 2).await;
    let mut other = message("other");
    other.message.destination = address("shipping");
    store.store_one(other).await.unwrap();
    let except = [address("billing")];
    let batch = store.fetch_due(FetchDue { limit: limit(9), except: &except }).await.unwrap();
    assert_eq!(names(&batch), ["other"]);
    assert!(!batch.contended, "what is excepted is nobody's");
    assert_eq!(store.next_due(&except).await.unwrap().due, None);
    assert!(store.next_due(&[]).await.unwrap().due.is_some());
}

#[tokio::test]
async fn a_batch_of_large_bodies_is_short() {
    let place = Place::new();
    let store = place.store().await;
    for n in 0..4 {
        let mut large = message(&format!("m{n}"));
        large.message.body = vec![b'x'; 9 << 20].into();
        store.store_one(large).await.unwrap();
    }
    assert_eq!(names(&store.fetch(limit(9)).await.unwrap()), ["m0", "m1"]);
}

#[tokio::test]
async fn a_dropped_fetch_holds_nothing() {
    let place = Place::new();
    let store = filled(&place, 50).await;
    for _ in 0..100 {
        drop(poll_immediate(store.fetch(limit(5))).await);
    }
    eventually("all are free", || async { store.fetch(limit(50)).await.unwrap().messages.len() == 50 }).await;
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_put_aside_alone() {
    let place = Place::new();
    let store = filled(&place, 3).await;
    let raw = rusqlite::Connection::open(place.path()).unwrap();
    raw.execute("UPDATE message SET destination = '' WHERE id = 'm1'", []).unwrap();
    let batch = store.fetch(limit(9)).await.unwrap();
    assert_eq!(names(&batch), ["m0", "m2"]);
    assert_eq!(store.next_due(&[]).await.unwrap().due, None);
    let stored = store.get(&id("m1")).await.unwrap().unwrap();
    assert!(stored.last_error.unwrap().contains("cannot be read"));
    assert_eq!(store.cancel(&[id("m1")]).await.unwrap(), [Cancellation::Cancelled]);
}

#[tokio::test]
async fn one_file_object_dispatches_and_another_takes_over_when_it_is_dropped() {
    let place = Place::new();
    let (first, second) = (filled(&place, 2).await, place.store().await);
    let batch = first.fetch(limit(1)).await.unwrap();
    let refused = second.fetch(limit(9)).await.unwrap();
    assert!(refused.messages.is_empty() && refused.contended);
    assert!(second.next_due(&[]).await.unwrap().due.is_some(), "m1 is not held");
    assert_eq!(second.stats().await.unwrap().in_flight, 1);
    drop((batch, first));
    assert_eq!(names(&second.fetch(limit(9)).await.unwrap()), ["m0", "m1"]);
}

#[tokio::test]
async fn the_right_to_dispatch_goes_with_the_last_store_and_claim_of_the_endpoint() {
    let place = Place::new();
    let sqlite = place.open().await;
    let first = orders(&sqlite, TransactionMode::ReceiveOnly).await;
    first.store_one(message("m0")).await.unwrap();
    let batch = first.fetch(limit(1)).await.unwrap();
    drop(first);
    let second = place.store().await;
    assert!(second.fetch(limit(1)).await.unwrap().contended, "a claim is left");
    drop(batch);
    assert_eq!(names(&second.fetch(limit(1)).await.unwrap()), ["m0"]);
    let again = orders(&sqlite, TransactionMode::ReceiveOnly).await;
    assert!(again.fetch(limit(1)).await.unwrap().contended);
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_beside_the_database_have_its_mode_and_owner() {
    use std::{fs, os::unix::fs::*};

    let place = Place::new();
    let store = filled(&place, 1).await;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o660)).unwrap();
    // Only root can give it away.
    chown(place.path(), Some(12_345), Some(12_345)).ok();
    store.fetch(limit(1)).await.unwrap();
    let seen = |name: &str| {
        let metadata = fs::metadata(place.directory.path().join(name)).unwrap();
        (metadata.mode() & 0o777, metadata.uid(), metadata.gid())
    };
    for beside in ["postdate.db-dispatch-1", "postdate.db-claims-1"] {
        assert_eq!(seen(beside), seen("postdate.db"), "{beside}");
    }
}

#[tokio::test]
async fn the_endpoints_of_a_file_are_dispatched_by_different_file_objects() {
    let place = Place::new();
    let mut batches = Vec::new();
    for name in ["orders", "invoices"] {
        let sqlite = place.open().await;
        let endpoint = EndpointName::new(name).unwrap();
        sqlite.set_up(&endpoint).await.unwrap();
        let store = sqlite.open(&endpoint, TransactionMode::None).await.unwrap();
        store.store_one(message(name)).await.unwrap();
        let batch = store.fetch(limit(9)).await.unwrap();
        assert_eq!(names(&batch), [name]);
        batches.push(batch);
    }
}

#[tokio::test]
async fn an_attempt_fails_once() {
    let place = Place::new();
    let store = filled(&place, 1).await;
    let failure = Failure { id: id("m0"), retry_after: Duration::ZERO, error: "no".into() };
    let mut batch = store.fetch(limit(1)).await.unwrap();
    let counted = batch.claim.increment_failure_count(&[failure.clone(), failure]).await.unwrap();
    assert_eq!(counted, [true, false]);
    assert_eq!(store.fetch(limit(1)).await.unwrap().messages[0].failures, 1);
}

#[tokio::test]
async fn every_file_object_sees_what_is_in_flight() {
    let place = Place::new();
    let (first, second) = (filled(&place, 2).await, place.store().await);
    let mut batch = first.fetch(limit(1)).await.unwrap();
    for store in [&first, &second] {
        let state = store.get(&id("m0")).await.unwrap().unwrap().state;
        assert_eq!(state, MessageState::InFlight);
        assert_eq!(store.cancel(&[id("m0")]).await.unwrap(), [Cancellation::InFlight]);
        assert_eq!(store.reschedule(&id("m0"), Due::NOW).await.unwrap(), Rescheduling::InFlight);
    }
    batch.claim.release(&[id("m0")]).await.unwrap();
    let answers = second.cancel(&[id("m0"), id("m1"), id("none")]).await.unwrap();
    assert_eq!(answers, [Cancellation::Cancelled, Cancellation::Cancelled, Cancellation::NotFound]);
}

#[tokio::test]
async fn a_failed_message_can_be_cancelled_by_others_at_once() {
    let place = Place::new();
    let (first, second) = (filled(&place, 50).await, place.store().await);
    let mut batch = first.fetch(limit(50)).await.unwrap();
    for message in &batch.messages {
        let id = message.message.id.clone();
        let failure = Failure { id: id.clone(), retry_after: Duration::from_secs(9), error: "no".into() };
        batch.claim.increment_failure_count(&[failure]).await.unwrap();
        assert_eq!(second.cancel(&[id]).await.unwrap(), [Cancellation::Cancelled]);
    }
}

/// Races fetches of one message against its cancellations, the latter a little later in every round; counts how
/// often the cancellation won.
async fn race(rounds: u32, dispatching: &Store, cancelling: &Store) -> u32 {
    let mut cancelled = 0;
    for round in 0..rounds {
        let name = format!("race {round}");
        dispatching.store_one(message(&name)).await.unwrap();
        let cancel = tokio::spawn({
            let (store, id) = (Arc::clone(cancelling), id(&name));
            async move {
                spin(Duration::from_micros(u64::from(round % 100) * 2));
                store.cancel(&[id]).await.unwrap()[0]
            }
        });
        let mut batch = dispatching.fetch(limit(1)).await.unwrap();
        match cancel.await.unwrap() {
            Cancellation::Cancelled => {
                assert!(batch.messages.is_empty(), "cancelled and claimed");
                cancelled += 1;
            }
            Cancellation::InFlight => {
                assert_eq!(batch.claim.remove(&[id(&name)]).await.unwrap(), [true], "in flight, not claimed");
            }
            Cancellation::NotFound => panic!("the message was there"),
        }
    }
    cancelled
}

/// Waits shorter than a timer can.
fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_claim_and_a_cancellation_one_wins_in_ten_thousand_races() {
    let place = Place::new();
    let store = place.store().await;
    let cancelled = race(10_000, &store, &store).await;
    assert!((1..10_000).contains(&cancelled), "one side always won: that was no race");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_claim_and_a_cancellation_elsewhere_one_wins() {
    let place = Place::new();
    let (first, second) = (place.store().await, place.store().await);
    let cancelled = race(1_000, &first, &second).await;
    assert!((1..1_000).contains(&cancelled), "one side always won: that was no race");
}

#[tokio::test]
async fn a_message_rescheduled_while_it_is_being_fetched_is_left_out() {
    let place = Place::new();
    let store = place.store().await;
    for round in 0..300 {
        let name = format!("m{round}");
        store.store_one(message(&name)).await.unwrap();
        let later = Due::after(Duration::from_secs(3_600));
        let (batch, answer) =
            join(store.fetch(limit(1)), async { store.reschedule(&id(&name), later).await }).await;
        let mut batch = batch.unwrap();
        match answer.unwrap() {
            Rescheduling::Rescheduled(_) => assert!(batch.messages.is_empty(), "rescheduled and claimed"),
            Rescheduling::InFlight => drop(batch.claim.remove(&[id(&name)]).await.unwrap()),
            Rescheduling::NotFound => panic!("the message was there"),
        }
    }
}

#[tokio::test]
async fn what_is_stored_late_with_an_earlier_due_time_is_found_first() {
    let place = Place::new();
    let store = place.store().await;
    let now = postdate_core::Clock::now(&*place.clock);
    store.store_one(delayed("late", Due::at(now))).await.unwrap();
    store.store_one(delayed("early", Due::at(now - Duration::from_secs(9)))).await.unwrap();
    assert_eq!(names(&store.fetch(limit(9)).await.unwrap()), ["early", "late"]);
}
