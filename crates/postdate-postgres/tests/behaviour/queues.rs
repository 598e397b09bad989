//! Queues: leases on the server's clock, names that come and go, and receivers in several processes.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::poll_immediate;
use postdate_core::{
    Address, DispatchError, DispatchErrorKind, Due, MessageId, OutgoingMessage, Queues as _, ReceivedBatch,
    Receiver, ReceiverExt as _, Selection, StoreErrorKind,
};
use postdate_postgres::{Options, Queues};
use tokio::time::timeout;

use crate::place::{Place, message, until};

pub(crate) fn address(name: &str) -> Address {
    Address::new(name).unwrap()
}

fn limit(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

fn next(count: usize) -> Selection {
    Selection::Next(limit(count))
}

pub(crate) fn outgoing(queue: &str, id: &str) -> OutgoingMessage {
    OutgoingMessage { destination: address(queue), ..message(id, Due::NOW).message }
}

pub(crate) async fn send(queues: &Queues, queue: &str, ids: &[&str]) {
    let messages: Vec<_> = ids.iter().map(|id| outgoing(queue, id)).collect();
    for outcome in queues.dispatcher().dispatch(&messages, None).await {
        outcome.unwrap();
    }
}

fn ids(batch: &ReceivedBatch) -> Vec<&str> {
    batch.messages.iter().map(|queued| queued.message.id.as_str()).collect()
}

fn positions(batch: &ReceivedBatch) -> Vec<u64> {
    batch.messages.iter().map(|queued| queued.position).collect()
}

async fn receive(receiver: &Arc<dyn Receiver>, count: usize) -> ReceivedBatch {
    receiver.try_receive(&next(count)).await.unwrap()
}

/// A handle on the queues, as of another process.
async fn open(place: &Place) -> Queues {
    Queues::with_options(place.options()).await.unwrap()
}

/// A queue `billing` with messages in it.
async fn filled(place: &Place, ids: &[&str]) -> (Queues, Arc<dyn Receiver>) {
    let queues = open(place).await;
    queues.create(&address("billing")).await.unwrap();
    send(&queues, "billing", ids).await;
    let receiver = queues.receiver(&address("billing")).await.unwrap();
    (queues, receiver)
}

/// A receiver in another process that is told of nothing more than what happens from now on.
async fn listening(place: &Place) -> Arc<dyn Receiver> {
    let receiver = open(place).await.receiver(&address("billing")).await.unwrap();
    // Whoever begins to listen is told once, because of what he has not heard.
    timeout(Duration::from_secs(20), receiver.changed()).await.expect("it does not listen");
    receiver
}

async fn depth(queues: &Queues, queue: &str) -> u64 {
    let listed = queues.list().await.unwrap();
    listed.iter().find(|status| status.name == address(queue)).unwrap().depth
}

/// As if all leases ended at a time of the server.
async fn leases_end(place: &Place, at: &str) {
    place.run(&format!("UPDATE $schema.queue_message SET locked_until = {at} WHERE lock <> 0")).await;
}

#[tokio::test]
async fn what_a_crashed_receiver_held_comes_when_its_lease_ends_and_who_waits_is_woken() {
    let place = Place::new();
    let (_queues, receiver) = filled(&place, &["a"]).await;
    std::mem::forget(receive(&receiver, 1).await.claim);
    leases_end(&place, "statement_timestamp() + '400 ms'").await;
    let began = Instant::now();
    let other = open(&place).await.receiver(&address("billing")).await.unwrap();
    let batch =
        timeout(Duration::from_secs(20), other.receive(limit(1))).await.expect("nobody was woken").unwrap();
    assert_eq!((ids(&batch)[0], batch.messages[0].deliveries), ("a", 1));
    assert!(
        began.elapsed() > Duration::from_millis(300),
        "taken from its holder after {:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_lease_that_ran_out_and_was_taken_by_another_is_lost() {
    let place = Place::new();
    let (_queues, receiver) = filled(&place, &["a", "b"]).await;
    let mut first = receive(&receiver, 2).await;
    leases_end(&place, "statement_timestamp()").await;
    let mut second = receive(&receiver, 1).await;
    let at = positions(&first);
    let error = first.claim.renew().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost);
    assert!(error.to_string().ends_with("nothing was renewed, receive again"), "{error}");
    assert_eq!(ids(&receive(&receiver, 2).await), ["b"], "nothing was renewed");
    assert_eq!(first.claim.abandon(&at[..1]).await.unwrap(), [false]);
    assert_eq!(first.claim.move_to(&at[..1], &address("billing")).await.unwrap(), [false]);
    assert_eq!(first.claim.complete(&at[..1]).await.unwrap(), [false]);
    assert_eq!(second.claim.complete(&at[..1]).await.unwrap(), [true]);
}

#[tokio::test]
async fn a_lease_that_was_given_by_a_wrong_clock_is_none() {
    let place = Place::new();
    let (_queues, receiver) = filled(&place, &["a"]).await;
    std::mem::forget(receive(&receiver, 1).await.claim);
    for (end, is_free) in [
        ("statement_timestamp() + '55 s'", false),
        ("'infinity'", false),
        ("statement_timestamp() + '65 s'", true),
    ] {
        leases_end(&place, end).await;
        assert_eq!(receive(&receiver, 1).await.messages.len(), usize::from(is_free), "{end}");
    }
}

#[tokio::test]
async fn who_drops_a_claim_and_receives_again_gets_the_same_first() {
    let place = Place::new();
    let (_queues, receiver) = filled(&place, &["a", "b", "c"]).await;
    for round in 0..30 {
        let batch = receive(&receiver, 1).await;
        assert_eq!(ids(&batch), ["a"], "in round {round}");
        assert_eq!(batch.messages[0].deliveries, round);
    }
}

#[tokio::test]
async fn a_receive_that_nobody_waits_for_any_more_counts_no_delivery() {
    let place = Place::new();
    let (_queues, receiver) = filled(&place, &["a"]).await;
    for _ in 0..10 {
        assert!(poll_immediate(Box::pin(receiver.try_receive(&next(1)))).await.is_none());
    }
    // What was begun ends some time.
    until("everything to be given back", async || {
        place.number("SELECT count(*) FROM $schema.queue_message WHERE lock = 0").await == 1
    })
    .await;
    let batch = timeout(Duration::from_secs(20), receiver.receive(limit(1))).await.unwrap().unwrap();
    assert_eq!(batch.messages[0].deliveries, 0);
}

#[test]
fn a_claim_that_outlives_its_runtime_leaves_the_messages_to_the_lease() {
    let place = Place::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let batch = first.block_on(async { receive(&filled(&place, &["a"]).await.1, 1).await });
    drop(first);
    drop(batch);
    let held = "SELECT count(*) FROM $schema.queue_message WHERE locked_until > statement_timestamp()";
    assert_eq!(runtime().block_on(place.number(held)), 1);
}

#[tokio::test]
async fn another_process_is_told_within_milliseconds() {
    let place = Place::new();
    let (queues, _) = filled(&place, &[]).await;
    let receiver = listening(&place).await;
    let mut took = Vec::new();
    for _ in 0..15 {
        let waiting = receiver.clone();
        let waiting = tokio::spawn(async move { waiting.receive(limit(1)).await.unwrap() });
        tokio::task::yield_now().await;
        send(&queues, "billing", &["a"]).await;
        let began = Instant::now();
        let mut batch = timeout(Duration::from_secs(20), waiting).await.expect("nobody was told").unwrap();
        took.push(began.elapsed());
        batch.claim.complete(&positions(&batch)).await.unwrap();
    }
    took.sort_unstable();
    assert!(took[7] < Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn a_receiver_that_is_stuck_keeps_only_what_it_has_locked() {
    let place = Place::new();
    let _queues = filled(&place, &["a", "b"]).await;
    let receiver = listening(&place).await;
    // As a process that was stopped amid its receive: the server waits for it to read the answer.
    let mut stuck = place.connection().await;
    let lock = place.named("BEGIN; SELECT seq FROM $schema.queue_message WHERE id = 'a' FOR UPDATE");
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut stuck).await.unwrap();
    let mut batch = receive(&receiver, 9).await;
    assert_eq!(ids(&batch), ["b"]);
    batch.claim.complete(&positions(&batch)).await.unwrap();
    let began = Instant::now();
    assert!(receive(&receiver, 9).await.messages.is_empty());
    assert!(began.elapsed() < Duration::from_secs(5), "it waited for the other for {:?}", began.elapsed());
    sqlx::raw_sql("ROLLBACK").execute(&mut stuck).await.unwrap();
    // Nobody tells of that.
    timeout(Duration::from_secs(20), receiver.changed()).await.expect("it does not look again by itself");
    assert_eq!(ids(&receive(&receiver, 9).await), ["a"]);
}

#[tokio::test]
async fn a_row_without_a_message_is_put_aside_alone_and_can_be_purged() {
    let place = Place::new();
    let (queues, receiver) = filled(&place, &["a", "b", "c"]).await;
    place.run("UPDATE $schema.queue_message SET id = '' WHERE id <> 'c'").await;
    // One at a time: the first two answers would be empty.
    assert_eq!(ids(&receive(&receiver, 1).await), ["c"]);
    assert_eq!(
        place.number("SELECT count(*) FROM $schema.queue_message WHERE locked_until = 'infinity'").await,
        2
    );
    let browsed = queues.browse(&address("billing"), 0, limit(1)).await.unwrap();
    assert_eq!(browsed[0].message.id.as_str(), "c");
    assert_eq!(depth(&queues, "billing").await, 3);
    let _held = receive(&receiver, 1).await;
    assert_eq!(queues.purge(&address("billing")).await.unwrap(), 2);
}

#[tokio::test]
async fn a_batch_ends_with_the_message_that_makes_sixteen_mebibytes() {
    let place = Place::new();
    let (queues, _) = filled(&place, &[]).await;
    let receiver = listening(&place).await;
    let large = OutgoingMessage { body: vec![7; 5 << 20].into(), ..outgoing("billing", "large") };
    for outcome in queues.dispatcher().dispatch(&vec![large; 6], None).await {
        outcome.unwrap();
    }
    timeout(Duration::from_secs(20), receiver.changed()).await.expect("nobody was told");
    let first = receive(&receiver, 100).await;
    assert_eq!(first.messages.len(), 4);
    assert!(
        poll_immediate(receiver.changed()).await.is_some(),
        "who shares the receiver sleeps beside the rest"
    );
    assert_eq!(receive(&receiver, 100).await.messages.len(), 2);
}

#[tokio::test]
async fn a_batch_that_no_statement_could_carry_is_sent_as_one() {
    let place = Place::new();
    let (queues, _) = filled(&place, &[]).await;
    let large = OutgoingMessage { body: vec![7; 30 << 20].into(), ..outgoing("billing", "large") };
    let mut batch = vec![large; 5];
    batch.insert(2, outgoing("nowhere", "x"));
    let outcomes = queues.dispatcher().dispatch(&batch, None).await;
    let failed: Vec<_> = outcomes.iter().map(|outcome| outcome.is_err()).collect();
    assert_eq!(failed, [false, false, true, false, false, false]);
    assert_eq!(depth(&queues, "billing").await, 5);
    let commits = "SELECT count(DISTINCT xmin::text) FROM $schema.queue_message";
    assert_eq!(place.number(commits).await, 1);
}

#[tokio::test]
async fn a_batch_that_nobody_waits_for_any_more_is_sent_as_a_whole_and_others_are_told() {
    let place = Place::new();
    let (queues, receiver) = filled(&place, &[]).await;
    let waiting = tokio::spawn(async move { receiver.receive(limit(1)).await.unwrap() });
    let batch: Vec<_> = ["a", "b", "c"].map(|id| outgoing("billing", id)).into();
    let dispatcher = queues.dispatcher();
    // The first call looks at the tables before it begins.
    dispatcher.dispatch(&[], None).await;
    assert!(poll_immediate(dispatcher.dispatch(&batch, None)).await.is_none());
    let came = timeout(Duration::from_secs(20), waiting).await.expect("nobody was told").unwrap();
    assert_eq!(ids(&came), ["a"]);
    assert_eq!(depth(&queues, "billing").await, 3);
}

fn kind(outcome: &Result<(), DispatchError>) -> Option<DispatchErrorKind> {
    outcome.as_ref().err().map(DispatchError::kind)
}

#[tokio::test]
async fn a_schema_that_was_dropped_and_made_again_is_not_mistaken_for_the_old_one() {
    let place = Place::new();
    let (queues, _) = filled(&place, &[]).await;
    queues.create(&address("audit")).await.unwrap();
    let dispatcher = queues.dispatcher();
    let batch = [outgoing("audit", "a"), outgoing("billing", "b")];
    assert!(dispatcher.dispatch(&batch, None).await.iter().all(Result::is_ok));

    place.run("SET client_min_messages TO error; DROP SCHEMA $schema CASCADE").await;
    let outcomes = dispatcher.dispatch(&batch, None).await;
    assert_eq!(outcomes.iter().map(kind).collect::<Vec<_>>(), [Some(DispatchErrorKind::NoDestination); 2]);
    assert!(outcomes[0].as_ref().unwrap_err().to_string().contains("postdate setup"));

    // The numbers are the other way round.
    let new = open(&place).await;
    new.create(&address("audit")).await.unwrap();
    assert_eq!(kind(&dispatcher.dispatch(&batch, None).await[1]), Some(DispatchErrorKind::NoDestination));
    new.create(&address("billing")).await.unwrap();
    assert!(dispatcher.dispatch(&batch[1..], None).await[0].is_ok());
    assert_eq!((depth(&new, "audit").await, depth(&new, "billing").await), (1, 1));
    let browsed = new.browse(&address("billing"), 0, limit(9)).await.unwrap();
    assert_eq!(browsed[0].message, batch[1]);
}

#[tokio::test]
async fn names_of_any_letters_are_only_names() {
    let hostile = ["a\"b", "a'b; DROP TABLE x --", r"a\b", "{queue}", "$1", "%s%", "ａ", "A", "a"];
    let schema = format!("{} \"'; {{x}} \\", Place::new().schema);
    let options = Options::new(Place::connect_options()).schema(&schema).prefix("p\"{queue}$1 ");
    let queues = Queues::with_options(options.clone()).await.unwrap();
    for name in hostile {
        assert!(queues.create(&address(name)).await.unwrap(), "{name}");
    }
    let batch: Vec<_> = hostile.iter().map(|name| outgoing(name, name)).collect();
    assert!(queues.dispatcher().dispatch(&batch, None).await.iter().all(Result::is_ok));
    for (sent, name) in batch.iter().zip(hostile) {
        let receiver = queues.receiver(&address(name)).await.unwrap();
        let wanted = Selection::Ids(vec![MessageId::new(name).unwrap()]);
        let mut came = receiver.try_receive(&wanted).await.unwrap();
        assert_eq!(came.messages.len(), 1, "{name}");
        assert_eq!(came.messages[0].message, *sent);
        let at = positions(&came);
        assert_eq!(came.claim.move_to(&at, &address("a")).await.unwrap(), [true]);
    }
    assert_eq!(depth(&queues, "a").await, 9);
    assert_eq!(queues.purge(&address("a")).await.unwrap(), 9);
    let drop = format!("DROP SCHEMA \"{}\" CASCADE", schema.replace('"', "\"\""));
    Place::new().run(&format!("SET client_min_messages TO error; {drop}")).await;
}

#[tokio::test]
async fn what_is_moved_stands_in_the_order_in_which_it_was_named() {
    let place = Place::new();
    let (queues, receiver) = filled(&place, &["a", "b", "c", "d"]).await;
    queues.create(&address("error")).await.unwrap();
    let mut batch = receive(&receiver, 4).await;
    let at = positions(&batch);
    let moved = batch.claim.move_to(&[at[3], at[0], at[2]], &address("error")).await.unwrap();
    assert_eq!(moved, [true; 3]);
    let error = queues.receiver(&address("error")).await.unwrap();
    assert_eq!(ids(&receive(&error, 9).await), ["d", "a", "c"]);
}

#[tokio::test]
async fn a_large_queue_is_purged_in_slices_and_what_comes_meanwhile_stays() {
    let place = Place::new();
    let (queues, _) = filled(&place, &[]).await;
    place
        .run(
            "INSERT INTO $schema.queue_message (queue, id, headers, body)
             SELECT (SELECT id FROM $schema.queue), n, '', '' FROM generate_series(1, 25000) n",
        )
        .await;
    let name = address("billing");
    let mut purge = Box::pin(queues.purge(&name));
    // Others are not kept waiting until all is done.
    while depth(&queues, "billing").await == 25_000 {
        assert!(poll_immediate(&mut purge).await.is_none());
    }
    assert!(
        depth(&queues, "billing").await >= 5_000,
        "the next slice is not asked for before the first is done"
    );
    send(&queues, "billing", &["new"]).await;
    assert_eq!(purge.await.unwrap(), 25_000);
    assert_eq!(depth(&queues, "billing").await, 1);
}

#[tokio::test]
async fn queues_of_a_newer_version_are_left_alone() {
    let place = Place::new();
    let (queues, _) = filled(&place, &["a"]).await;
    place.run("UPDATE $schema.version SET version = 1000").await;
    let (new, name) = (open(&place).await, address("billing"));
    let errors = [
        new.create(&address("x")).await.map(drop).unwrap_err(),
        new.list().await.map(drop).unwrap_err(),
        new.purge(&name).await.map(drop).unwrap_err(),
        new.browse(&name, 0, limit(1)).await.map(drop).unwrap_err(),
        new.receiver(&name).await.map(drop).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == StoreErrorKind::TooNew), "{errors:?}");
    let outcomes = new.dispatcher().dispatch(&[outgoing("billing", "b")], None).await;
    let error = outcomes[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), DispatchErrorKind::Unavailable);
    assert!(error.to_string().contains("update this postdate"), "{error}");
    place.run("UPDATE $schema.version SET version = 1").await;
    assert_eq!(depth(&queues, "billing").await, 1);
}

#[tokio::test]
async fn a_missing_queue_is_named_with_what_to_do_whether_there_are_tables_or_not() {
    let place = Place::new();
    let (queues, nowhere) = (open(&place).await, address("nowhere"));
    assert!(queues.list().await.unwrap().is_empty());
    for _ in 0..2 {
        let errors = [
            queues.receiver(&nowhere).await.map(drop).unwrap_err(),
            queues.purge(&nowhere).await.map(drop).unwrap_err(),
            queues.browse(&nowhere, 0, limit(1)).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), StoreErrorKind::NoSuchQueue);
            assert!(error.to_string().contains("`postdate queue create nowhere`"), "{error}");
        }
        queues.create(&address("billing")).await.unwrap();
    }
}
