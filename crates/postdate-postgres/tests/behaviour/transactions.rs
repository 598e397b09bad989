//! Sending and removing as one.

use std::{process::Command, str::FromStr, sync::Arc, time::Duration};

use futures::future::poll_immediate;
use postdate_core::{
    Backend as _, DelayedMessageStore, DelayedMessageStoreExt as _, DispatchErrorKind, Dispatcher, Due,
    DueBatch, OutgoingMessage, Queues as _, StoreErrorKind, TransactionMode,
};
use postdate_postgres::{Options, Postgres, PostgresTransaction, Queues};
use sqlx::{AssertSqlSafe, ConnectOptions as _, postgres::PgConnectOptions};
use test_postgres::{Server, Settings};
use tokio::time::timeout;

use crate::{
    place::{Place, endpoint, message, until},
    queues::{address, outgoing},
};

type Store = Arc<dyn DelayedMessageStore>;

/// Two due messages, a queue `billing`, and queues of another process.
async fn scene(options: Options) -> (Store, Queues) {
    let backend = Postgres::with_options(options.clone()).await.unwrap();
    backend.set_up(&endpoint()).await.unwrap();
    let store = backend.open(&endpoint(), TransactionMode::TransactionScope).await.unwrap();
    store.store(&["a", "b"].map(|id| message(id, Due::NOW))).await.unwrap();
    let queues = Queues::with_options(options).await.unwrap();
    queues.create(&address("billing")).await.unwrap();
    (store, queues)
}

async fn fetch(store: &Store) -> DueBatch {
    let batch = store.fetch(9.try_into().unwrap()).await.unwrap();
    assert_eq!(batch.messages.len(), 2);
    batch
}

fn sends(batch: &DueBatch) -> Vec<OutgoingMessage> {
    batch.messages.iter().map(|due| due.message.clone()).collect()
}

async fn joins(dispatcher: &dyn Dispatcher, batch: &mut DueBatch) -> bool {
    dispatcher.joins(batch.claim.enlist().unwrap()).await.unwrap()
}

async fn depth(queues: &Queues) -> u64 {
    queues.list().await.unwrap()[0].depth
}

/// Everything is as it was: nothing sent, nothing removed, nothing held.
async fn nothing_happened(store: &Store, queues: &Queues) {
    until("everything to be given back", async || {
        store.fetch(9.try_into().unwrap()).await.unwrap().messages.len() == 2
    })
    .await;
    assert_eq!(depth(queues).await, 0);
}

#[tokio::test]
async fn a_batch_is_sent_and_removed_by_the_commit_and_other_processes_are_told() {
    let place = Place::new();
    let (store, queues) = scene(place.options()).await;
    let receiver = queues.receiver(&address("billing")).await.unwrap();
    let mut waiting = Box::pin(tokio::spawn(async move {
        use postdate_core::ReceiverExt as _;
        receiver.receive(9.try_into().unwrap()).await.unwrap()
    }));
    let (mut batch, dispatcher) = (fetch(&store).await, queues.dispatcher());
    assert!(joins(&*dispatcher, &mut batch).await);
    for outcome in dispatcher.dispatch(&sends(&batch), batch.claim.enlist()).await {
        outcome.unwrap();
    }
    let both: Vec<_> = batch.messages.iter().map(|due| due.message.id.clone()).collect();
    assert_eq!(batch.claim.remove(&both).await.unwrap(), [true, true]);
    assert_eq!(depth(&queues).await, 0);
    assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err());
    batch.claim.commit().await.unwrap();
    let came = timeout(Duration::from_secs(20), waiting).await.expect("nobody was told").unwrap();
    assert_eq!(came.messages.len(), 2);
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn a_missing_queue_and_an_oversized_message_spoil_nothing() {
    let place = Place::new();
    let (store, queues) = scene(place.options()).await;
    let mut batch = fetch(&store).await;
    let large =
        OutgoingMessage { body: vec![0; queues.max_message_bytes() + 1].into(), ..outgoing("billing", "x") };
    let sends = [outgoing("nowhere", "a"), large, outgoing("billing", "b")];
    let outcomes = queues.dispatcher().dispatch(&sends, batch.claim.enlist()).await;
    let kinds: Vec<_> =
        outcomes.iter().map(|outcome| outcome.as_ref().err().map(|error| error.kind())).collect();
    assert_eq!(kinds, [Some(DispatchErrorKind::NoDestination), Some(DispatchErrorKind::Rejected), None]);
    batch.claim.commit().await.unwrap();
    assert_eq!(depth(&queues).await, 1);
}

#[tokio::test]
async fn a_transaction_in_which_a_statement_failed_is_not_committed_with_success() {
    let place = Place::new();
    let (store, queues) = scene(place.options()).await;
    let mut batch = fetch(&store).await;
    for outcome in queues.dispatcher().dispatch(&sends(&batch), batch.claim.enlist()).await {
        outcome.unwrap();
    }
    let mut enlistment = batch.claim.enlist().unwrap();
    let transaction = enlistment.transaction::<PostgresTransaction>().unwrap();
    sqlx::query("SELECT 1 / 0").execute(transaction.connection()).await.unwrap_err();
    // Every message is told so, and no more than the first statement is tried.
    for _ in 0..2 {
        let outcomes = queues.dispatcher().dispatch(&sends(&batch), batch.claim.enlist()).await;
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), DispatchErrorKind::Unavailable);
            assert!(error.to_string().contains("a statement of this transaction failed"), "{error}");
        }
    }
    let error = batch.claim.commit().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost, "{error}");
    nothing_happened(&store, &queues).await;
}

/// The server itself answers the end of a failed transaction with success.
#[tokio::test]
async fn a_failure_of_somebody_elses_statement_is_noticed_by_the_commit() {
    let place = Place::new();
    let (store, queues) = scene(place.options()).await;
    let mut batch = fetch(&store).await;
    queues.dispatcher().dispatch(&sends(&batch), batch.claim.enlist()).await.remove(0).unwrap();
    let mut enlistment = batch.claim.enlist().unwrap();
    let transaction = enlistment.transaction::<PostgresTransaction>().unwrap();
    sqlx::query("SELECT 1 / 0").execute(transaction.connection()).await.unwrap_err();
    let error = batch.claim.commit().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::ClaimLost, "{error}");
    nothing_happened(&store, &queues).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_half_way_takes_its_transaction_with_it() {
    let place = Place::new();
    let (store, queues) = scene(place.options()).await;
    let (mut batch, dispatcher) = (fetch(&store).await, queues.dispatcher());
    assert!(joins(&*dispatcher, &mut batch).await);
    let sends = sends(&batch);
    // Somebody is in the way, so that the call waits where it is dropped.
    let mut connection = place.connection().await;
    let lock = place.named("BEGIN; LOCK TABLE $schema.queue_message");
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut connection).await.unwrap();
    assert!(poll_immediate(dispatcher.dispatch(&sends, batch.claim.enlist())).await.is_none());
    sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
    let outcomes = dispatcher.dispatch(&sends, batch.claim.enlist()).await;
    assert!(outcomes.iter().all(|outcome| outcome.is_err()), "nobody knows whether it is in there");
    assert_eq!(batch.claim.commit().await.unwrap_err().kind(), StoreErrorKind::ClaimLost);
    nothing_happened(&store, &queues).await;
}

#[tokio::test]
async fn a_transaction_whose_session_was_ended_sends_nothing_more() {
    let place = Place::new();
    let connect = Place::connect_options().application_name(&place.schema);
    let (store, queues) = scene(Options::new(connect).schema(&place.schema)).await;
    let mut batch = fetch(&store).await;
    let end = "
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = '$schema' AND state = 'idle in transaction'";
    assert_eq!(place.number(end).await, 1);
    for _ in 0..2 {
        let outcomes = queues.dispatcher().dispatch(&sends(&batch), batch.claim.enlist()).await;
        for outcome in outcomes {
            assert_eq!(outcome.unwrap_err().kind(), DispatchErrorKind::Unavailable);
        }
    }
    assert_eq!(batch.claim.commit().await.unwrap_err().kind(), StoreErrorKind::ClaimLost);
    nothing_happened(&store, &queues).await;
}

#[tokio::test]
async fn the_same_place_joins_by_whatever_way_it_is_reached() {
    let place = Place::new();
    let (store, _) = scene(place.options()).await;
    let connect = Place::connect_options().host("localhost");
    let queues = Queues::with_options(Options::new(connect).schema(&place.schema)).await.unwrap();
    let mut batch = fetch(&store).await;
    assert!(joins(&*queues.dispatcher(), &mut batch).await);
}

#[tokio::test]
async fn neither_another_schema_nor_another_prefix_nor_another_database_joins() {
    let place = Place::new();
    let (store, queues) = scene(place.options()).await;
    let database = format!("copy_of_{}", place.schema);
    place.run(&format!("CREATE DATABASE {database}")).await;
    let mut batch = fetch(&store).await;
    for other in [
        Place::new().options(),
        place.options().prefix("x"),
        Options::new(Place::connect_options().database(&database)).schema(&place.schema),
    ] {
        let foreign = Queues::with_options(other).await.unwrap();
        foreign.create(&address("billing")).await.unwrap();
        let dispatcher = foreign.dispatcher();
        assert!(!joins(&*dispatcher, &mut batch).await, "{foreign:?}");
        // Whoever does not ask is told all the same.
        let outcomes = dispatcher.dispatch(&sends(&batch), batch.claim.enlist()).await;
        let error = outcomes[1].as_ref().unwrap_err();
        assert_eq!(error.kind(), DispatchErrorKind::Unavailable);
        assert!(error.to_string().contains("ask `joins`"), "{error}");
        assert_eq!(depth(&foreign).await, 0);
    }
    // The transaction is none the worse for it.
    queues.dispatcher().dispatch(&sends(&batch), batch.claim.enlist()).await.remove(0).unwrap();
    batch.claim.commit().await.unwrap();
    assert_eq!(depth(&queues).await, 2);
    place.run(&format!("DROP DATABASE {database} WITH (FORCE)")).await;
}

/// What a standby is that was promoted while its primary lives on.
#[tokio::test]
async fn a_copy_of_the_server_does_not_join_although_it_says_the_same_of_itself() {
    let mut server = Server::start(&Settings::fast()).unwrap();
    let mut copy = Server::start(&Settings::fast()).unwrap();
    let url = server.url();
    let url_of_copy = url.replace(&format!(":{}/", server.port()), &format!(":{}/", copy.port()));
    let options = |url: &str| Options::new(PgConnectOptions::from_str(url).unwrap()).schema("same");
    drop(scene(options(&url)).await);

    server.stop().unwrap();
    copy.stop().unwrap();
    std::fs::remove_dir_all(copy.data_dir()).unwrap();
    let copied = Command::new("cp").arg("-a").arg(server.data_dir()).arg(copy.data_dir()).status().unwrap();
    assert!(copied.success());
    server.start_again().unwrap();
    copy.start_again().unwrap();
    assert_eq!(identity(&url).await, identity(&url_of_copy).await);

    let backend = Postgres::with_options(options(&url)).await.unwrap();
    let store = backend.open(&endpoint(), TransactionMode::TransactionScope).await.unwrap();
    let mut batch = fetch(&store).await;
    let elsewhere = Queues::with_options(options(&url_of_copy)).await.unwrap();
    assert!(!joins(&*elsewhere.dispatcher(), &mut batch).await);
    let outcomes = elsewhere.dispatcher().dispatch(&sends(&batch), batch.claim.enlist()).await;
    assert!(outcomes.iter().all(Result::is_err));
    let here = Queues::with_options(options(&url)).await.unwrap();
    assert!(joins(&*here.dispatcher(), &mut batch).await);
}

/// The name that a cluster is given when it is made.
async fn identity(url: &str) -> String {
    let mut connection = PgConnectOptions::from_str(url).unwrap().connect().await.unwrap();
    let ask = "SELECT system_identifier || ' ' || current_database() || ' ' || 'same.queue_message'::regclass::oid::text
               FROM pg_control_system()";
    sqlx::query_scalar(AssertSqlSafe(ask)).fetch_one(&mut connection).await.unwrap()
}
