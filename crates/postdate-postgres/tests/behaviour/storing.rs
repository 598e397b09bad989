//! Callers who store at the same time.

use std::time::Duration;

use futures::future::join_all;
use postdate_core::{DelayedMessageStoreExt, Due, StoreErrorKind};

use crate::place::{Place, endpoint, message};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn callers_at_the_same_time_share_commits_and_get_answers_of_their_own() {
    let place = Place::new();
    let store = place.store().await;
    store.store_one(message("m7", Due::after(HOUR))).await.unwrap();
    let before = place.number("SELECT count(DISTINCT xmin::text) FROM $schema.message").await;
    let calls = (0..64).map(|i| {
        let mut sent = message(&format!("m{i}"), Due::after(HOUR));
        if i == 7 {
            sent.message.body = "another".into();
        }
        store.store_one(sent)
    });
    let answers = join_all(calls).await;
    for (i, answer) in answers.iter().enumerate() {
        assert_eq!(
            answer.as_ref().err().map(|error| error.kind()),
            (i == 7).then_some(StoreErrorKind::Conflict)
        );
    }
    assert_eq!(place.number("SELECT count(*) FROM $schema.message").await, 64);
    let commits = place.number("SELECT count(DISTINCT xmin::text) FROM $schema.message").await - before;
    assert!((1..32).contains(&commits), "{commits} commits for 63 callers");
}

#[tokio::test]
async fn a_conflict_in_a_batch_undoes_that_batch_and_no_other_callers() {
    let place = Place::new();
    let store = place.store().await;
    store.store_one(message("there", Due::after(HOUR))).await.unwrap();
    let mut other = message("there", Due::after(HOUR));
    other.message.body = "another".into();
    let good = [message("a", Due::after(HOUR)), message("b", Due::after(HOUR))];
    let bad = [message("c", Due::after(HOUR)), other, message("d", Due::after(HOUR))];
    let twice = [message("e", Due::after(HOUR)), message("e", Due::after(HOUR))];
    let (good, bad, twice) = tokio::join!(store.store(&good), store.store(&bad), store.store(&twice));
    assert_eq!(good.unwrap().len(), 2);
    assert_eq!(bad.unwrap_err().kind(), StoreErrorKind::Conflict);
    let twice = twice.unwrap();
    assert_eq!(twice[0], twice[1]);
    assert_eq!(place.number("SELECT count(*) FROM $schema.message").await, 4);
}

#[tokio::test]
async fn whoever_goes_away_does_not_cut_others_off() {
    let place = Place::new();
    let store = place.store().await;
    let mut calls: Vec<_> = (0..32)
        .map(|i| {
            let store = std::sync::Arc::clone(&store);
            tokio::spawn(async move { store.store_one(message(&format!("m{i}"), Due::after(HOUR))).await })
        })
        .collect();
    tokio::task::yield_now().await;
    calls.drain(..16).for_each(|call| call.abort());
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[test]
fn a_runtime_that_ends_leaves_the_handle_usable_in_another_one() {
    let place = Place::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (backend, store) = {
        let runtime = runtime();
        let opened = runtime.block_on(async {
            let backend = place.open().await;
            let store = crate::place::store(&backend).await;
            // The task that stores is cut off with the runtime.
            let call = std::sync::Arc::clone(&store);
            tokio::spawn(async move { call.store_one(message("lost", Due::after(HOUR))).await });
            tokio::task::yield_now().await;
            (backend, store)
        });
        runtime.shutdown_background();
        opened
    };
    runtime().block_on(async {
        // The connections of the other runtime are of no use: they may fail, and are replaced.
        let mut stored = store.store_one(message("m", Due::after(HOUR))).await;
        for _ in 0..3 {
            if stored.is_err() {
                stored = store.store_one(message("m", Due::after(HOUR))).await;
            }
        }
        stored.unwrap();
        postdate_core::Backend::set_up(&backend, &endpoint()).await.unwrap();
    });
}
