//! All or none, and the same again (S8).

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use postdate_core::{
    Address, DelayedMessage, DelayedMessageStoreExt as _, Due, EncodedHeaders, StoreErrorKind,
};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{deliver, drain, hold_one, nothing_is_free, refused},
    harness::{checks, ensure_eq},
    make::{HOUR, address, id, ids, limit, long_ago, many, message, with_body},
    patience::Patience,
};

checks! {
    async fn a_batch_is_stored_as_its_messages_would_be_one_by_one(bench: &Bench) -> Result<()> {
        let (batched, single) = (bench.store_for("batched").await?, bench.store_for("single").await?);
        let all = many(30);
        let together = batched.store(&all).await?;
        let mut one_by_one = Vec::new();
        for message in &all {
            one_by_one.extend(single.store(std::slice::from_ref(message)).await?);
        }
        ensure_eq!(together, one_by_one);
        ensure_eq!(drain(&*batched, all.len()).await?, drain(&*single, all.len()).await?);
        Ok(())
    }

    async fn storing_answers_with_the_due_times_in_order(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut all = many(10);
        all.reverse();
        let wanted: Vec<_> = all.iter().map(|delayed| delayed.due).collect();
        let answered: Vec<_> = store.store(&all).await?.into_iter().map(Due::At).collect();
        ensure_eq!(answered, wanted);
        ensure!(store.store(&[]).await?.is_empty());
        Ok(())
    }

    async fn of_a_batch_with_a_conflict_nothing_is_stored(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store_one(with_body("m00003", "first")).await?;
        refused(store.store(&many(5)).await, StoreErrorKind::Conflict)?;
        let drained = drain(&*store, 1).await?;
        ensure_eq!(drained[0].message.body, "first");
        Ok(())
    }

    async fn of_a_batch_with_a_conflict_in_itself_nothing_is_stored(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut all = many(3);
        all.push(with_body("m00001", "other"));
        refused(store.store(&all).await, StoreErrorKind::Conflict)?;
        nothing_is_free(&*store).await
    }

    async fn the_same_message_again_changes_nothing(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let all = many(5);
        let due = store.store(&all).await?;
        ensure_eq!(other.store(&all).await?, due);
        ensure_eq!(other.store(&all[2..3]).await?, &due[2..3]);
        drain(&*store, all.len()).await?;
        Ok(())
    }

    async fn the_same_message_twice_in_a_batch_is_stored_once(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let one = message("m", long_ago(0));
        let due = store.store(&[one.clone(), one]).await?;
        ensure!(due.len() == 2 && due[0] == due[1]);
        drain(&*store, 1).await?;
        Ok(())
    }

    async fn storing_a_held_message_again_changes_nothing(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        let held = hold_one(&*store).await?;
        other.store(&many(1)).await?;
        nothing_is_free(&*other).await?;
        nothing_is_free(&*store).await?;
        held.deliver().await?;
        nothing_is_free(&*store).await
    }

    async fn the_same_id_with_other_content_is_a_conflict(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let first = message("m", long_ago(0));
        store.store_one(first.clone()).await?;
        let altered: [fn(&mut DelayedMessage); 5] = [
            |m| m.message.body = "another body".into(),
            |m| m.message.body = "body of m\0".into(),
            |m| m.message.headers = EncodedHeaders::from_bytes("{}"),
            |m| m.message.destination = elsewhere(),
            |m| m.due = long_ago(1),
        ];
        for alter in altered {
            let mut second = first.clone();
            alter(&mut second);
            refused(store.store(std::slice::from_ref(&second)).await, StoreErrorKind::Conflict)?;
            refused(other.store(&[second]).await, StoreErrorKind::Conflict)?;
        }
        ensure_eq!(drain(&*store, 1).await?[0].message, first.message);
        Ok(())
    }

    async fn relative_due_times_are_not_compared(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let due = store.store_one(message("m", Due::after(HOUR))).await?;
        ensure_eq!(store.store_one(message("m", Due::after(2 * HOUR))).await?, due);
        ensure!(store.get(&id("m")).await?.is_some_and(|seen| seen.message.due == due));
        Ok(())
    }

    async fn the_same_message_after_a_failure_changes_nothing(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        hold_one(&*store).await?.fail(HOUR, "no answer").await?;
        other.store(&many(1)).await?;
        nothing_is_free(&*store).await?;
        let seen = store.get(&id("m00000")).await?;
        ensure!(seen.as_ref().is_some_and(|seen| seen.message.failures == 1), "{seen:?}");
        Ok(())
    }

    async fn the_same_message_after_a_rescheduling_changes_nothing(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let hour = store.next_due(&[]).await?.now.checked_add(HOUR)?;
        for (name, due) in [("absolute", Due::at(hour)), ("relative", Due::after(HOUR))] {
            // Whoever lost the answer asks again, and an operator may have been quicker.
            store.store_one(message(name, due)).await?;
            other.reschedule(&id(name), Due::after(2 * HOUR)).await?;
            let moved = store.get(&id(name)).await?.map(|seen| seen.message.due);
            ensure!(moved > Some(hour));
            let answered = store.store_one(message(name, due)).await?;
            ensure_eq!((Some(answered), store.get(&id(name)).await?.map(|seen| seen.message.due)), (moved, moved));
        }
        Ok(())
    }

    async fn a_message_that_was_delivered_or_cancelled_may_come_anew(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        for body in ["first", "second", "third"] {
            store.store_one(with_body("m", body)).await?;
            ensure_eq!(drain(&*store, 1).await?[0].message.body, body);
            store.store_one(with_body("m", "taken back")).await?;
            store.cancel(&[id("m")]).await?;
        }
        Ok(())
    }

    async fn what_is_stored_while_others_fetch_is_delivered_once(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let mut storing = JoinSet::new();
        for task in 0..4 {
            let handle = [&store, &other][task % 2].clone();
            storing.spawn(async move {
                for number in 0..50 {
                    handle.store_one(message(format!("{task}/{number}"), long_ago(number))).await?;
                }
                anyhow::Ok(())
            });
        }
        let mut came = BTreeSet::new();
        let patience = Patience::with("everything that was stored");
        while came.len() < 200 {
            let batch = deliver(store.fetch(limit(7)).await?).await?;
            if batch.is_empty() {
                patience.a_moment().await?;
            }
            for due in batch {
                ensure!(came.insert(due.message.id.clone()), "{} came twice", due.message.id);
            }
        }
        while let Some(stored) = storing.join_next().await {
            stored??;
        }
        nothing_is_free(&*store).await
    }

    async fn those_who_work_in_opposite_order_do_not_block_each_other(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let all = many(60);
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let (store, mut mine) = ([&store, &other][task % 2].clone(), all.clone());
            if task % 4 < 2 {
                mine.reverse();
            }
            tasks.spawn(async move {
                for _ in 0..5 {
                    store.store(&mine).await?;
                    store.cancel(&ids(&mine)).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        store.store(&all).await?;
        drain(&*store, all.len()).await?;
        Ok(())
    }

    async fn many_who_store_the_same_at_once_store_it_once(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let all = many(20);
        let mut tasks = JoinSet::new();
        for i in 0..16 {
            let (store, all) = ([&store, &other][i % 2].clone(), all.clone());
            tasks.spawn(async move { store.store(&all).await });
        }
        while let Some(stored) = tasks.join_next().await {
            stored??;
        }
        let drained = drain(&*store, all.len()).await?;
        ensure!(drained.iter().map(|due| due.message.id.clone()).eq(ids(&all)));
        Ok(())
    }
}

fn elsewhere() -> Address {
    address("elsewhere")
}
