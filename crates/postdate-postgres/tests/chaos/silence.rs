//! Nothing breaks, but nothing comes through either.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures::future::join_all;
use postdate_core::{
    Backend as _, DelayedMessageStoreExt as _, Due, Queues as _, Selection, StoreError, StoreErrorKind,
    TransactionMode,
};
use postdate_postgres::Postgres;
use tokio::time::timeout;

use crate::{
    cuts::through_proxy,
    proxy::Proxy,
    scene::{BATCH, Diary, Scene, address, again, deliver, eventually, limit, open, orders},
};

/// No call may take longer; see `CALL_LIMIT` in the crate.
const LIMIT: Duration = Duration::from_secs(48);

type Call<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever_for_a_server_that_says_nothing_and_delivery_goes_on_afterwards() {
    let scene = Scene::shared().await;
    let (proxy, postgres) = through_proxy(&scene).await;
    let store = open(&postgres, TransactionMode::ReceiveOnly).await;
    scene.fill(4).await;
    let [removed, renewed] = [store.fetch(limit(2)).await.unwrap(), store.fetch(limit(2)).await.unwrap()];
    let (mut remove, mut renew) = (removed.claim, renewed.claim);
    let held: Vec<_> = removed.messages.into_iter().map(|due| due.message.id).collect();
    let diary = Arc::new(Diary::default());
    let delivery = deliver(&postgres, TransactionMode::TransactionScope, &diary).await;
    scene.fill(500).await;
    let receiver = postgres.queues().receiver(&address("billing")).await.unwrap();
    let message = [scene.message(Due::after(Duration::from_secs(3_600)))];
    let by_hand = [scene.message(Due::NOW).message];
    let (some, queues, dispatcher) = (held[0].clone(), postgres.queues(), postgres.queues().dispatcher());
    let (billing, endpoint, next) = (address("billing"), orders(), Selection::Next(limit(1)));
    let url = scene.url_at(&proxy.url(), "late");
    eventually("delivery", async || diary.dispatched.load(Relaxed) > 0).await;
    proxy.stall();
    let dispatched = diary.dispatched.load(Relaxed);
    let calls: Vec<(&str, Call<'_>)> = vec![
        ("store", Box::pin(async { store.store(&message).await.map(drop) })),
        ("fetch", Box::pin(async { store.fetch(limit(1)).await.map(drop) })),
        ("next due", Box::pin(async { store.next_due(&[]).await.map(drop) })),
        ("get", Box::pin(async { store.get(&some).await.map(drop) })),
        ("cancel", Box::pin(async { store.cancel(std::slice::from_ref(&some)).await.map(drop) })),
        ("reschedule", Box::pin(async { store.reschedule(&some, Due::NOW).await.map(drop) })),
        ("stats", Box::pin(async { store.stats().await.map(drop) })),
        ("open", Box::pin(async { postgres.open(&endpoint, TransactionMode::None).await.map(drop) })),
        ("remove", Box::pin(async { remove.remove(&held).await.map(drop) })),
        ("renew", Box::pin(async { renew.renew().await })),
        ("browse", Box::pin(async { queues.browse(&billing, 0, limit(1)).await.map(drop) })),
        ("receive", Box::pin(async { receiver.try_receive(&next).await.map(drop) })),
        ("connect", Box::pin(async { Postgres::connect(&url).await.map(drop) })),
    ];
    let send = async {
        let outcomes =
            timeout(LIMIT, dispatcher.dispatch(&by_hand, None)).await.expect("sending waits for ever");
        assert!(outcomes.iter().all(Result::is_err), "sending was answered by nobody");
    };
    tokio::join!(join_all(calls.into_iter().map(fails_in_time)), send);
    eventually("giving up a delivery", async || diary.failed_calls.load(Relaxed) > 0).await;
    assert!(diary.dispatched.load(Relaxed) <= dispatched + BATCH as u64 * 2, "something came through");
    proxy.resume();
    let dues = again(async || store.store(&message).await).await;
    scene.note(&message, dues);
    drop((remove, renew));
    scene.settle().await;
    delivery.stop().await;
    assert_eq!(diary.counted_failures.load(Relaxed), 0, "an outage counted against messages");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_frees_what_a_frozen_dispatcher_holds() {
    for mode in [TransactionMode::ReceiveOnly, TransactionMode::TransactionScope] {
        let scene = Scene::shared().await;
        scene.fill(5).await;
        let proxy = Proxy::before(&test_postgres::url()).await;
        // A test has no minute.
        proxy.replace(
            "idle_in_transaction_session_timeout TO 60000",
            "idle_in_transaction_session_timeout TO  2000",
        );
        let url = scene.url_at(&proxy.url(), "frozen");
        let frozen = open(&Postgres::connect(&url).await.unwrap(), mode).await;
        let other = open(&scene.open().await, mode).await;
        let mut lost = frozen.fetch(limit(5)).await.unwrap();
        assert!(proxy.struck() > 0, "the sessions end transactions by another statement now");
        let ids: Vec<_> = lost.messages.iter().map(|due| due.message.id.clone()).collect();
        proxy.stall();
        let start = Instant::now();
        while other.fetch(limit(5)).await.unwrap().messages.len() < 5 {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "{mode}: what a frozen dispatcher holds is not free"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(start.elapsed() > Duration::from_millis(1_500), "{mode}: it was not held at all");
        proxy.resume();
        let removed = lost.claim.remove(&ids).await;
        let committed = lost.claim.commit().await;
        assert!(removed.is_err() || committed.is_err(), "{mode}: a lost claim removes messages");
        assert_eq!(scene.judge().await.pending, 5);
        scene.end().await;
    }
}

async fn fails_in_time((name, call): (&str, Call<'_>)) {
    match timeout(LIMIT, call).await {
        Ok(Err(error)) => {
            assert!(error.is_transient() || error.kind() == StoreErrorKind::ClaimLost, "{error}")
        }
        Ok(Ok(())) => panic!("{name} was answered by nobody"),
        Err(_) => panic!("{name} waits for ever"),
    }
}
