//! Queues: order, one holder, locks that run out, errors by message.

use std::{collections::HashSet, sync::Arc, time::Duration};

use crate::place::{Place, address, eventually, id, limit, outgoing};
use futures::{FutureExt, future::poll_immediate};
use postdate_core::{
    Backend, DispatchErrorKind, Queues, ReceivedBatch, Receiver, ReceiverExt, Selection, StoreErrorKind,
};
use postdate_sqlite::Sqlite;

fn names(batch: &ReceivedBatch) -> Vec<&str> {
    batch.messages.iter().map(|message| message.message.id.as_str()).collect()
}

fn positions(batch: &ReceivedBatch) -> Vec<u64> {
    batch.messages.iter().map(|message| message.position).collect()
}

async fn send(sqlite: &Sqlite, queue: &str, names: &[&str]) {
    let messages: Vec<_> = names.iter().map(|name| outgoing(queue, name)).collect();
    for outcome in sqlite.queues().dispatcher().dispatch(&messages, None).await {
        outcome.unwrap();
    }
}

/// A queue `billing` with messages in it.
async fn filled(place: &Place, names: &[&str]) -> (Sqlite, Arc<dyn Receiver>) {
    let sqlite = place.open().await;
    sqlite.queues().create(&address("billing")).await.unwrap();
    send(&sqlite, "billing", names).await;
    let receiver = sqlite.queues().receiver(&address("billing")).await.unwrap();
    (sqlite, receiver)
}

fn next(count: usize) -> Selection {
    Selection::Next(limit(count))
}

#[tokio::test]
async fn a_queue_is_created_once() {
    let place = Place::new();
    let queues = place.open().await.queues();
    assert!(queues.list().await.unwrap().is_empty());
    assert!(queues.create(&address("billing")).await.unwrap());
    assert!(!queues.create(&address("billing")).await.unwrap());
    assert!(queues.create(&address("Billing")).await.unwrap(), "names differ by case");
    assert_eq!(queues.list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn messages_arrive_in_order_with_their_content() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a", "b", "c"]).await;
    let batch = receiver.try_receive(&next(2)).await.unwrap();
    assert_eq!(names(&batch), ["a", "b"]);
    assert_eq!(batch.messages[0].message, outgoing("billing", "a"));
    assert_eq!(batch.messages[0].deliveries, 0);
    assert!(batch.messages[0].position < batch.messages[1].position);
    assert_eq!(names(&receiver.try_receive(&next(2)).await.unwrap()), ["c"]);
}

#[tokio::test]
async fn what_was_given_back_is_first_again_and_counted() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a", "b", "c"]).await;
    let mut batch = receiver.try_receive(&next(2)).await.unwrap();
    assert_eq!(batch.claim.abandon(&positions(&batch)[..1]).await.unwrap(), [true]);
    assert_eq!(batch.claim.complete(&positions(&batch)).await.unwrap(), [false, true]);
    let again = receiver.try_receive(&next(9)).await.unwrap();
    assert_eq!(names(&again), ["a", "c"]);
    assert_eq!(again.messages[0].deliveries, 1);
    drop(again);
    let all = receiver.receive(limit(9)).await.unwrap();
    assert_eq!(names(&all), ["a", "c"]);
}

#[tokio::test]
async fn a_lock_runs_out_unless_it_is_renewed_and_its_token_is_stale_then() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a"]).await;
    let mut first = receiver.try_receive(&next(1)).await.unwrap();
    place.clock.advance(Duration::from_secs(20));
    first.claim.renew().await.unwrap();
    place.clock.advance(Duration::from_secs(29));
    assert!(receiver.try_receive(&next(1)).await.unwrap().messages.is_empty(), "it was renewed");
    place.clock.advance(Duration::from_secs(1));
    let mut second = receiver.try_receive(&next(1)).await.unwrap();
    assert_eq!(names(&second), ["a"]);
    let at = positions(&first);
    assert_eq!(first.claim.renew().await.unwrap_err().kind(), StoreErrorKind::ClaimLost);
    assert_eq!(first.claim.complete(&at).await.unwrap(), [false]);
    assert_eq!(first.claim.abandon(&at).await.unwrap(), [false]);
    assert_eq!(first.claim.move_to(&at, &address("billing")).await.unwrap(), [false]);
    assert_eq!(second.claim.complete(&at).await.unwrap(), [true]);
}

#[tokio::test]
async fn a_receiver_is_woken_when_the_lock_of_another_runs_out() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &["a"]).await;
    let other = sqlite.queues().receiver(&address("billing")).await.unwrap();
    let held = receiver.try_receive(&next(1)).await.unwrap();
    place.clock.advance(Duration::from_millis(29_950));
    assert!(other.try_receive(&next(1)).await.unwrap().messages.is_empty());
    // The lock ends 50 ms from now by the wall clock; nothing else would wake it.
    tokio::time::timeout(Duration::from_secs(10), other.changed()).await.unwrap();
    place.clock.advance(Duration::from_millis(50));
    assert_eq!(names(&other.try_receive(&next(1)).await.unwrap()), ["a"]);
    drop(held);
}

#[tokio::test]
async fn a_lock_that_was_taken_by_a_wrong_clock_is_no_lock() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &["a", "b"]).await;
    let (wrong, term) = (Duration::from_secs(3_600), Duration::from_secs(30));
    place.clock.advance(wrong);
    let mut held = receiver.try_receive(&next(2)).await.unwrap();
    place.clock.turn_back(term);
    assert!(receiver.try_receive(&next(1)).await.unwrap().messages.is_empty(), "clocks may differ a little");
    place.clock.turn_back(wrong - term);
    let second = receiver.try_receive(&next(1)).await.unwrap();
    assert_eq!(names(&second), ["a"]);
    assert_eq!(sqlite.queues().purge(&address("billing")).await.unwrap(), 1, "b is free too");
    let at = positions(&held);
    assert_eq!(held.claim.complete(&at).await.unwrap(), [false, false]);
}

#[tokio::test]
async fn a_receiver_that_has_received_is_still_woken_when_the_lock_of_another_runs_out() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &["a"]).await;
    let other = sqlite.queues().receiver(&address("billing")).await.unwrap();
    let held = receiver.try_receive(&next(1)).await.unwrap();
    place.clock.advance(Duration::from_millis(29_950));
    assert!(other.try_receive(&next(2)).await.unwrap().messages.is_empty());
    send(&sqlite, "billing", &["b"]).await;
    let received = other.try_receive(&next(2)).await.unwrap();
    assert_eq!(names(&received), ["b"]);
    while other.changed().now_or_never().is_some() {}
    tokio::time::timeout(Duration::from_secs(10), other.changed()).await.unwrap();
    drop((held, received));
}

#[tokio::test]
async fn of_two_that_share_a_receiver_none_sleeps_beside_a_free_message() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &[]).await;
    assert!(receiver.try_receive(&next(1)).await.unwrap().messages.is_empty());
    send(&sqlite, "billing", &["a", "b"]).await;
    receiver.changed().await;
    let first = receiver.try_receive(&next(1)).await.unwrap();
    assert!(receiver.changed().now_or_never().is_some(), "b is free");
    let second = receiver.try_receive(&next(2)).await.unwrap();
    assert_eq!((names(&first), names(&second)), (vec!["a"], vec!["b"]));
    assert!(receiver.changed().now_or_never().is_none(), "nothing is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_competing_receivers_in_two_file_objects_each_message_has_one() {
    let place = Place::new();
    let all: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    let (one, _) = filled(&place, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let two = place.open().await;
    let tasks = (0..8).map(|n| {
        let sqlite = if n % 2 == 0 { one.clone() } else { two.clone() };
        tokio::spawn(async move {
            let receiver = sqlite.queues().receiver(&address("billing")).await.unwrap();
            let mut mine = Vec::new();
            loop {
                let mut batch = receiver.try_receive(&next(7)).await.unwrap();
                if batch.messages.is_empty() {
                    return mine;
                }
                let at = positions(&batch);
                assert_eq!(batch.claim.complete(&at).await.unwrap(), vec![true; at.len()]);
                mine.extend(at);
            }
        })
    });
    let received: Vec<_> =
        futures::future::join_all(tasks).await.into_iter().flat_map(|task| task.unwrap()).collect();
    assert_eq!(received.len(), 400);
    assert_eq!(received.iter().collect::<HashSet<_>>().len(), 400);
}

#[tokio::test]
async fn a_dropped_receive_takes_nothing_and_counts_nothing() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a", "b"]).await;
    let mut received = 0;
    for _ in 0..100 {
        // The writer thread may be quicker than the poll.
        received += u32::from(poll_immediate(receiver.try_receive(&next(2))).await.is_some());
    }
    eventually("both are free", || async {
        let mut batch = receiver.try_receive(&next(2)).await.unwrap();
        assert!(batch.messages.iter().all(|message| message.deliveries <= received), "{:?}", batch.messages);
        let free = batch.messages.len() == 2;
        batch.claim.complete(&if free { positions(&batch) } else { vec![] }).await.unwrap();
        free
    })
    .await;
}

#[tokio::test]
async fn one_missing_queue_keeps_no_other_message_from_being_sent() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &[]).await;
    let mut large = outgoing("billing", "large");
    large.body = vec![0; (32 << 20) + (256 << 10)].into();
    let messages = [outgoing("nowhere", "x"), outgoing("billing", "y"), large];
    let outcomes = sqlite.queues().dispatcher().dispatch(&messages, None).await;
    let missing = outcomes[0].as_ref().unwrap_err();
    assert_eq!(missing.kind(), DispatchErrorKind::NoDestination);
    assert!(missing.to_string().contains("`postdate queue create nowhere`"), "{missing}");
    assert!(outcomes[1].is_ok());
    assert_eq!(outcomes[2].as_ref().unwrap_err().kind(), DispatchErrorKind::Rejected);
    assert_eq!(names(&receiver.try_receive(&next(9)).await.unwrap()), ["y"]);
}

#[tokio::test]
async fn a_queue_that_another_process_creates_is_seen_at_once() {
    let place = Place::new();
    let (one, two) = (place.open().await, place.open().await);
    let send = || async { one.queues().dispatcher().dispatch(&[outgoing("new", "a")], None).await };
    assert_eq!(send().await[0].as_ref().unwrap_err().kind(), DispatchErrorKind::NoDestination);
    two.queues().create(&address("new")).await.unwrap();
    assert!(send().await[0].is_ok());
}

#[tokio::test]
async fn a_missing_queue_is_named_with_what_to_do() {
    let place = Place::new();
    let sqlite = place.open().await;
    for set_up in [false, true] {
        if set_up {
            sqlite.set_up(&postdate_core::EndpointName::new("orders").unwrap()).await.unwrap();
        }
        let queues = sqlite.queues();
        let name = address("nowhere");
        let errors = [
            queues.receiver(&name).await.unwrap_err(),
            queues.purge(&name).await.unwrap_err(),
            queues.browse(&name, 0, limit(1)).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), StoreErrorKind::NoSuchQueue);
            assert!(error.to_string().contains("create it with"), "{error}");
        }
    }
}

#[tokio::test]
async fn moving_puts_messages_at_the_end_of_another_queue() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &["a", "b"]).await;
    sqlite.queues().create(&address("error")).await.unwrap();
    send(&sqlite, "error", &["old"]).await;
    let mut batch = receiver.try_receive(&next(2)).await.unwrap();
    let at = positions(&batch);
    let missing = batch.claim.move_to(&at, &address("nowhere")).await.unwrap_err();
    assert_eq!(missing.kind(), StoreErrorKind::NoSuchQueue);
    assert_eq!(batch.claim.move_to(&at, &address("error")).await.unwrap(), [true, true]);
    let browsed = sqlite.queues().browse(&address("error"), 0, limit(9)).await.unwrap();
    let ids: Vec<_> = browsed.iter().map(|message| message.message.id.as_str()).collect();
    assert_eq!(ids, ["old", "a", "b"]);
    assert_eq!(browsed[1].message.destination, address("error"));
    assert!(browsed[1].position > at[1], "positions are never used twice");
}

#[tokio::test]
async fn renewing_a_claim_that_lost_one_message_changes_nothing() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a", "b"]).await;
    let mut first = receiver.try_receive(&next(2)).await.unwrap();
    place.clock.advance(Duration::from_secs(30));
    let second = receiver.try_receive(&next(1)).await.unwrap();
    let error = first.claim.renew().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost);
    assert!(error.to_string().contains("receive again"), "{error}");
    assert_eq!(names(&receiver.try_receive(&next(9)).await.unwrap()), ["b"]);
    drop(second);
}

#[tokio::test]
async fn a_claim_that_was_told_what_it_lost_renews_the_rest() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a", "b"]).await;
    let mut first = receiver.try_receive(&next(2)).await.unwrap();
    place.clock.advance(Duration::from_secs(30));
    let second = receiver.try_receive(&next(1)).await.unwrap();
    let at = positions(&first);
    assert_eq!(first.claim.complete(&at[..1]).await.unwrap(), [false]);
    first.claim.renew().await.unwrap();
    assert!(receiver.try_receive(&next(9)).await.unwrap().messages.is_empty(), "b is held again");
    assert_eq!(first.claim.complete(&at[1..]).await.unwrap(), [true]);
    drop(second);
}

#[tokio::test]
async fn browsing_takes_nothing_and_goes_on_after_a_position() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &["a", "b", "c"]).await;
    let first = sqlite.queues().browse(&address("billing"), 0, limit(2)).await.unwrap();
    let rest = sqlite.queues().browse(&address("billing"), first[1].position, limit(9)).await.unwrap();
    assert_eq!(rest[0].message.id, id("c"));
    assert_eq!(receiver.try_receive(&next(9)).await.unwrap().messages.len(), 3);
}

#[tokio::test]
async fn purging_leaves_what_receivers_hold_and_depth_counts_it() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &["a", "b", "c"]).await;
    let mut held = receiver.try_receive(&next(1)).await.unwrap();
    assert_eq!(sqlite.queues().purge(&address("billing")).await.unwrap(), 2);
    let status = sqlite.queues().list().await.unwrap().remove(0);
    assert_eq!((status.depth, status.oldest), (1, Some(held.messages[0].enqueued)));
    let at = positions(&held);
    assert_eq!(held.claim.complete(&at).await.unwrap(), [true]);
    assert_eq!(sqlite.queues().list().await.unwrap()[0].oldest, None);
}

#[tokio::test]
async fn a_large_queue_is_purged_in_slices() {
    let place = Place::new();
    let (sqlite, _receiver) = filled(&place, &[]).await;
    let raw = rusqlite::Connection::open(place.path()).unwrap();
    let fill = "
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20001)
        INSERT INTO queue_message (queue, enqueued, id, headers, body) SELECT 1, 0, n, x'', x'' FROM n";
    raw.execute_batch(fill).unwrap();
    let (queues, name) = (sqlite.queues(), address("billing"));
    let depth = || async { queues.list().await.unwrap()[0].depth };

    let mut purge = std::pin::pin!(queues.purge(&name));
    assert!(poll_immediate(&mut purge).await.is_none());
    eventually("a part is gone", || async { depth().await < 20_001 }).await;
    assert_eq!(depth().await, 10_001, "the next slice is not asked for before the first is done");
    send(&sqlite, "billing", &["new"]).await;
    assert_eq!(purge.await.unwrap(), 20_001, "what comes meanwhile is left");
    assert_eq!(depth().await, 1);
}

#[tokio::test]
async fn messages_are_received_by_id_wherever_they_stand() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a", "b", "c", "d"]).await;
    let chosen = Selection::Ids(vec![id("d"), id("b"), id("none")]);
    let batch = receiver.try_receive(&chosen).await.unwrap();
    assert_eq!(names(&batch), ["b", "d"], "in their order in the queue");
    assert!(receiver.try_receive(&chosen).await.unwrap().messages.is_empty());
    assert_eq!(names(&receiver.try_receive(&next(9)).await.unwrap()), ["a", "c"]);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_does_not_stop_the_queue() {
    let place = Place::new();
    let (_sqlite, receiver) = filled(&place, &["a", "b"]).await;
    let raw = rusqlite::Connection::open(place.path()).unwrap();
    raw.execute("UPDATE queue_message SET id = '' WHERE id = 'a'", []).unwrap();
    assert_eq!(names(&receiver.try_receive(&next(9)).await.unwrap()), ["b"]);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_ends_no_listing_and_can_be_purged() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &["a", "b"]).await;
    let raw = rusqlite::Connection::open(place.path()).unwrap();
    raw.execute("UPDATE queue_message SET id = '' WHERE id = 'a'", []).unwrap();
    let held = receiver.try_receive(&next(9)).await.unwrap();
    let queues = sqlite.queues();
    let browsed = queues.browse(&address("billing"), 0, limit(1)).await.unwrap();
    assert_eq!(browsed[0].message.id, id("b"));
    assert!(receiver.try_receive(&next(9)).await.unwrap().messages.is_empty());
    assert_eq!(queues.purge(&address("billing")).await.unwrap(), 1);
    assert_eq!(queues.list().await.unwrap()[0].depth, 1);
    drop(held);
}

#[tokio::test]
async fn a_receiver_is_told_of_what_arrives_and_not_twice() {
    let place = Place::new();
    let (sqlite, receiver) = filled(&place, &[]).await;
    assert!(receiver.try_receive(&next(1)).await.unwrap().messages.is_empty());
    assert!(receiver.changed().now_or_never().is_none());
    send(&sqlite, "billing", &["a"]).await;
    receiver.changed().await;
    assert!(receiver.changed().now_or_never().is_none());
}
