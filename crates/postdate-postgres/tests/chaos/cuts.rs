//! Connections break in the middle of what is said.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use postdate_core::{DelayedMessageStoreExt as _, Due, TransactionMode};
use postdate_postgres::Postgres;

use crate::{
    chance::Chance,
    clients::Clients,
    ledger::Counts,
    proxy::{At, Proxy, Trap},
    scene::{BATCH, Diary, Scene, deliver, eventually, limit, open},
};

/// So many connections are cut, each somewhere within so many bytes of one direction: in words of greeting, in a
/// statement, in rows, before or after a commit.
const CUTS: usize = 100;
const WITHIN: u64 = 40_000;

#[tokio::test(flavor = "multi_thread")]
async fn over_cuts_anywhere_a_shared_transaction_is_exactly_once() {
    let (_, counts) = cut_under_load(TransactionMode::TransactionScope).await;
    assert_eq!(counts.duplicates, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_cuts_anywhere_only_what_was_on_its_way_arrives_again() {
    let (cuts, counts) = cut_under_load(TransactionMode::ReceiveOnly).await;
    assert!(counts.duplicates <= cuts * 2 * BATCH, "{counts}, {cuts} connections were cut");
}

/// Answers how many connections were cut while messages were stored and delivered, and what came of those.
async fn cut_under_load(mode: TransactionMode) -> (usize, Counts) {
    let scene = Scene::shared().await;
    let (proxy, postgres) = through_proxy(&scene).await;
    let (store, diary) = (open(&postgres, TransactionMode::None).await, Arc::new(Diary::default()));
    let delivery = deliver(&postgres, mode, &diary).await;
    let clients = Clients::default();
    let cut = async {
        proxy.cut_each_within(WITHIN, Chance::new());
        // Those that are there have no limit.
        proxy.cut_all();
        eventually("cutting connections", async || {
            if scene.overdue().await < 200 {
                scene.fill(500).await;
            }
            proxy.struck() >= CUTS
        })
        .await;
        proxy.heal();
        clients.stop();
    };
    tokio::join!(clients.store(&scene, &*store), cut);
    println!("{} cuts, {} calls of clients failed", proxy.struck(), clients.failures());
    let counts = scene.settle().await;
    delivery.stop().await;
    assert!(
        clients.failures() > 0 && diary.failed_calls.load(Relaxed) > 0,
        "no call came upon a cut connection"
    );
    assert_eq!(diary.counted_failures.load(Relaxed), 0, "an outage counted against messages");
    scene.end().await;
    (proxy.struck(), counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_although_nobody_was_told_is_stored_once() {
    for (at, is_there) in [(At::Request, false), (At::Reply, true)] {
        let scene = Scene::shared().await;
        let (proxy, postgres) = through_proxy(&scene).await;
        let store = open(&postgres, TransactionMode::None).await;
        let message = [scene.message(Due::after(Duration::from_secs(3_600)))];
        proxy.set(Trap { words: "INSERT INTO", at });
        let error = store.store(&message).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert_eq!(proxy.struck(), 1);
        let stored = store.get(&message[0].message.id).await.unwrap();
        assert_eq!(stored.is_some(), is_there, "{at:?}");
        let dues = store.store(&message).await.unwrap();
        assert!(stored.is_none_or(|stored| stored.message.due == dues[0]), "storing again moved it");
        scene.note(&message, dues);
        assert_eq!(scene.judge().await.pending, 1);
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_whose_commit_is_cut_off_is_exactly_once_in_a_shared_transaction() {
    for (at, words) in [(At::Request, "COMMIT"), (At::Reply, "COMMIT"), (At::Reply, "DELETE FROM")] {
        let (dispatched, duplicates) = deliver_over(TransactionMode::TransactionScope, at, words).await;
        assert_eq!(duplicates, 0, "{at:?} {words}");
        // What was committed although nobody was told is not delivered again.
        let once = at == At::Reply && words == "COMMIT";
        assert_eq!(dispatched, if once { 0 } else { 5 }, "{at:?} {words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_whose_removal_is_cut_off_happens_again_at_most_once() {
    for (at, again) in [(At::Request, 5), (At::Reply, 0)] {
        let (_, duplicates) = deliver_over(TransactionMode::ReceiveOnly, at, "COMMIT").await;
        assert_eq!(duplicates, again, "{at:?}");
    }
}

/// Delivers five messages while one statement is cut off; answers how many were said to be delivered, and how many
/// arrived again.
async fn deliver_over(mode: TransactionMode, at: At, words: &'static str) -> (u64, usize) {
    let scene = Scene::shared().await;
    let (proxy, postgres) = through_proxy(&scene).await;
    let diary = Arc::new(Diary::default());
    scene.fill(5).await;
    // Before delivery begins, so that the first commit is that of the five messages.
    let delivery = {
        let delivery = deliver(&postgres, mode, &diary);
        proxy.set(Trap { words, at });
        delivery.await
    };
    eventually("cutting", async || proxy.struck() == 1).await;
    let counts = scene.settle().await;
    delivery.stop().await;
    assert_eq!((counts.arrived, counts.pending), (5, 0));
    assert_eq!(diary.counted_failures.load(Relaxed), 0);
    let counts = (diary.dispatched.load(Relaxed), scene.judge().await.duplicates);
    scene.end().await;
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_whose_connections_were_all_cut_works_at_the_second_call() {
    let scene = Scene::shared().await;
    scene.fill(3).await;
    let (proxy, postgres) = through_proxy(&scene).await;
    let store = open(&postgres, TransactionMode::ReceiveOnly).await;
    // Some connections are idle.
    let (one, other) = tokio::join!(store.fetch(limit(1)), store.fetch(limit(1)));
    drop((one.unwrap(), other.unwrap()));
    for _ in 0..3 {
        proxy.cut_all();
        // One call may come upon a connection of which nobody knew that it is broken.
        if let Err(error) = store.stats().await {
            assert!(error.is_transient(), "{error}");
        }
        store.stats().await.unwrap();
        if let Err(error) = store.fetch(limit(1)).await {
            assert!(error.is_transient(), "{error}");
        }
        assert_eq!(store.fetch(limit(1)).await.unwrap().messages.len(), 1);
    }
    scene.end().await;
}

pub(crate) async fn through_proxy(scene: &Scene) -> (Proxy, Postgres) {
    let direct = test_postgres::url();
    let proxy = Proxy::before(&direct).await;
    let postgres = Postgres::connect(&scene.url_at(&proxy.url(), "through-proxy")).await.unwrap();
    (proxy, postgres)
}
