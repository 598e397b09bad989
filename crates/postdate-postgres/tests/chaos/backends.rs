//! The server ends a connection, as administrators do, and failovers, and a server short of memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use postdate_core::{DelayedMessageStoreExt as _, Due, StoreErrorKind, TransactionMode};
use postdate_postgres::Postgres;
use sqlx::{Connection as _, PgConnection};

use crate::{
    clients::Clients,
    ledger::Counts,
    scene::{BATCH, Diary, Scene, deliver, eventually, limit, open},
};

/// What a connection does when it is ended: a call, nothing, or holding messages.
const STATES: [&str; 3] = ["active", "idle", "idle in transaction"];

/// So often in all of them together, and at least once in the middle of a statement. How often a backend is met between two
/// statements of a claim is up to the machine: a test of its own below sees to that.
const TIMES: usize = 18;

#[tokio::test(flavor = "multi_thread")]
async fn over_terminated_backends_a_shared_transaction_is_exactly_once() {
    let (_, counts) = terminate_under_load(TransactionMode::TransactionScope).await;
    assert_eq!(counts.duplicates, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_terminated_backends_only_what_was_on_its_way_arrives_again() {
    let (terminated, counts) = terminate_under_load(TransactionMode::ReceiveOnly).await;
    assert!(counts.duplicates <= terminated * 2 * BATCH, "{counts}, {terminated} were terminated");
}

/// Answers how many backends were terminated while messages were stored and delivered, and what came of those.
async fn terminate_under_load(mode: TransactionMode) -> (usize, Counts) {
    let scene = Scene::shared().await;
    let postgres = victim(&scene).await;
    let (store, diary) = (open(&postgres, TransactionMode::None).await, Arc::new(Diary::default()));
    let delivery = deliver(&postgres, mode, &diary).await;
    let clients = Clients::default();
    let terminate = async {
        let mut terminated = BTreeMap::new();
        let mut connection = scene.connection().await;
        eventually("terminating backends in every state", async || {
            if scene.overdue().await < 200 {
                scene.fill(500).await;
            }
            for state in STATES {
                *terminated.entry(state).or_default() += terminate(&scene, &mut connection, state).await;
            }

            terminated["active"] > 0 && terminated.values().sum::<usize>() >= TIMES
        })
        .await;
        clients.stop();
        terminated
    };
    let ((), terminated) = tokio::join!(clients.store(&scene, &*store), terminate);
    println!("{terminated:?}, {} calls of clients failed", clients.failures());
    let counts = scene.settle().await;
    delivery.stop().await;
    assert!(
        clients.failures() > 0 && diary.failed_calls.load(Relaxed) > 0,
        "no call came upon a terminated backend"
    );
    assert_eq!(diary.counted_failures.load(Relaxed), 0, "an outage counted against messages");
    scene.end().await;
    (terminated.values().sum(), counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn storing_that_is_cut_off_has_not_happened_and_can_be_repeated() {
    let scene = Scene::shared().await;
    let postgres = victim(&scene).await;
    let store = open(&postgres, TransactionMode::None).await;
    let message = [scene.message(Due::after(Duration::from_secs(3_600)))];
    let error = cut_off(&scene, "SHARE", store.store(&message)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let stored = async || store.get(&message[0].message.id).await.unwrap();
    assert!(stored().await.is_none());
    scene.note(&message, store.store(&message).await.unwrap());
    assert_eq!(scene.judge().await.pending, 1);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fetching_that_is_cut_off_holds_nothing() {
    let scene = Scene::shared().await;
    scene.fill(5).await;
    let store = open(&victim(&scene).await, TransactionMode::ReceiveOnly).await;
    let error = cut_off(&scene, "EXCLUSIVE", store.fetch(limit(5))).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(store.fetch(limit(5)).await.unwrap().messages.len(), 5);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_cut_off_gives_everything_back() {
    let scene = Scene::shared().await;
    scene.fill(5).await;
    for mode in [TransactionMode::ReceiveOnly, TransactionMode::TransactionScope] {
        let store = open(&victim(&scene).await, mode).await;
        let mut batch = store.fetch(limit(5)).await.unwrap();
        let ids: Vec<_> = batch.messages.iter().map(|due| due.message.id.clone()).collect();
        assert_eq!(ids.len(), 5, "{mode}");
        let settle = async {
            batch.claim.remove(&ids).await?;
            batch.claim.commit().await
        };
        let error = cut_off(&scene, "SHARE", settle).await.unwrap_err();
        assert!(error.is_transient() || error.kind() == StoreErrorKind::ClaimLost, "{mode}: {error}");
    }
    assert_eq!(scene.judge().await.pending, 5);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_terminated_backend_held_is_free_at_once_and_its_claim_says_so() {
    let scene = Scene::shared().await;
    scene.fill(5).await;
    for mode in [TransactionMode::ReceiveOnly, TransactionMode::TransactionScope] {
        let (victim, other) =
            (open(&victim(&scene).await, mode).await, open(&scene.open().await, mode).await);
        let mut lost = victim.fetch(limit(5)).await.unwrap();
        let ids: Vec<_> = lost.messages.iter().map(|due| due.message.id.clone()).collect();
        assert!(other.fetch(limit(5)).await.unwrap().messages.is_empty());
        let mut connection = scene.connection().await;
        assert_eq!(terminate(&scene, &mut connection, "idle in transaction").await, 1);
        let start = Instant::now();
        let mut batch = other.fetch(limit(5)).await.unwrap();
        while batch.messages.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(5), "{mode}: what was held is not free");
            batch = other.fetch(limit(5)).await.unwrap();
        }
        assert_eq!(batch.messages.len(), 5, "{mode}");
        let removed = lost.claim.remove(&ids).await;
        let committed = lost.claim.commit().await;
        let is_told =
            removed.is_err() || removed.is_ok_and(|held| !held.contains(&true)) || committed.is_err();
        assert!(is_told, "{mode}: a lost claim removes messages");
        assert_eq!(batch.claim.remove(&ids[..1]).await.unwrap(), [true]);
        // The others stay.
        drop(batch);
        scene.fill(1).await;
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_whose_listener_was_terminated_is_woken_again() {
    let scene = Scene::shared().await;
    let postgres = victim(&scene).await;
    let diary = Arc::new(Diary::default());
    let delivery = deliver(&postgres, TransactionMode::TransactionScope, &diary).await;
    let mut connection = scene.connection().await;
    let delivered = async |count| {
        let start = Instant::now();
        while diary.dispatched.load(Relaxed) < count {
            // Without being woken it would look after a minute.
            assert!(start.elapsed() < Duration::from_secs(20), "{count} messages should have been delivered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for round in 0..3 {
        eventually("listening", async || listeners(&scene, &mut connection).await.len() == 1).await;
        scene.fill(1).await;
        delivered(2 * round + 1).await;
        let listening = listeners(&scene, &mut connection).await;
        let end = sqlx::query_scalar::<_, bool>("SELECT pg_terminate_backend($1)").bind(listening[0]);
        assert!(end.fetch_one(&mut connection).await.unwrap());
        // Nobody hears of this one.
        scene.fill(1).await;
        delivered(2 * round + 2).await;
    }
    delivery.stop().await;
    scene.end().await;
}

/// The schema, under the name by which backends are chosen.
async fn victim(scene: &Scene) -> Postgres {
    Postgres::connect(&scene.url_at(&test_postgres::url(), &name(scene))).await.unwrap()
}

fn name(scene: &Scene) -> String {
    format!("victim-{}", scene.schema())
}

/// Terminates one of the victim's backends that is in this state. Answers how many that were.
async fn terminate(scene: &Scene, connection: &mut PgConnection, state: &str) -> usize {
    let one =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND state = $2
        ORDER BY random() LIMIT 1";
    let ended =
        sqlx::query_scalar::<_, bool>(one).bind(name(scene)).bind(state).fetch_optional(connection).await;
    usize::from(ended.unwrap().unwrap_or(false))
}

async fn listeners(scene: &Scene, connection: &mut PgConnection) -> Vec<i32> {
    let listening = "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND query ILIKE 'listen %'";
    sqlx::query_scalar(listening).bind(name(scene)).fetch_all(connection).await.unwrap()
}

/// Holds a call up by a lock on the table of messages, and terminates its backend there.
async fn cut_off<T>(scene: &Scene, lock: &str, call: impl Future<Output = T>) -> T {
    let mut holder = scene.connection().await;
    let mut transaction = holder.begin().await.unwrap();
    let lock = format!("LOCK TABLE {}.message IN {lock} MODE", scene.schema());
    sqlx::raw_sql(sqlx::AssertSqlSafe(lock)).execute(&mut *transaction).await.unwrap();
    let terminate = async {
        let mut connection = scene.connection().await;
        let held_up = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = $1 AND wait_event_type = 'Lock'";
        eventually("waiting for the lock", async || {
            let ended =
                sqlx::query_scalar::<_, bool>(held_up).bind(name(scene)).fetch_all(&mut connection).await;
            !ended.unwrap().is_empty()
        })
        .await;
        transaction.rollback().await.unwrap();
    };
    tokio::join!(call, terminate).0
}
