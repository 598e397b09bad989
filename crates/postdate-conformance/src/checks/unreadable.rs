//! A row that cannot be read is one message's misfortune (S11).

use anyhow::{Result, ensure};
use postdate_core::{
    Cancellation, DelayedMessageStore, DelayedMessageStoreExt as _, Due, Filter, ListQuery, MessageState,
    ScheduledSummary,
};

use crate::{
    Meddling,
    bench::Bench,
    drive::{drain, hold_one, list_all, nothing_is_free},
    harness::{checks, ensure_eq},
    make::{HOUR, endpoint, id, ids, limit, many, message},
};

checks! {
    async fn an_unreadable_row_does_not_stop_the_rest(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let all = many(6);
        store.store(&all).await?;
        damage(bench, "m00000").await?;
        damage(bench, "m00003").await?;
        let whole: Vec<_> = ids(&all).into_iter().filter(|id| !is_damaged(id.as_str())).collect();
        // One by one, so that a fetch finds nothing but the damaged row first.
        ensure_eq!(hold_one(&*store).await?.deliver().await?.message.id, whole[0]);
        let came: Vec<_> = drain(&*store, 3).await?.into_iter().map(|due| due.message.id).collect();
        ensure_eq!(came.as_slice(), &whole[1..]);
        nothing_is_free(&*other).await
    }

    async fn rows_that_are_all_unreadable_do_not_stop_what_comes_behind_them(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all = many(40);
        store.store(&all).await?;
        for message in &all[..39] {
            damage(bench, message.message.id.as_str()).await?;
        }
        ensure_eq!(drain(&*store, 1).await?[0].message.id, all[39].message.id);
        Ok(())
    }

    async fn an_unreadable_row_does_not_hold_up_the_next_due_time(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let later = store.store_one(message("later", Due::after(HOUR))).await?;
        damage(bench, "m00000").await?;
        nothing_is_free(&*store).await?;
        let next = store.next_due(&[]).await?;
        ensure!(next.due == Some(later), "what is due next is {next:?}, the message that can be read at {later}");
        let counts = store.stats().await?;
        ensure!(counts.pending == 2 && counts.next_due == Some(later), "{counts:?}");
        Ok(())
    }

    async fn an_unreadable_row_is_shown_with_what_is_wrong_with_it(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(2)).await?;
        damage(bench, "m00000").await?;
        drain(&*store, 1).await?;
        for handle in [&store, &other] {
            let lines = listed(&**handle).await?;
            ensure!(lines.len() == 1 && lines[0].id == id("m00000"), "the list shows {lines:?}");
            ensure!(lines[0].state == MessageState::Pending, "nobody holds it: {lines:?}");
            let error = lines[0].last_error.as_deref().unwrap_or_default();
            ensure!(!error.is_empty(), "the list does not say what is wrong with it");
            ensure!(!error.contains("body of"), "an error tells a body: {error}");
            handle.get(&id("m00000")).await?;
        }
        Ok(())
    }

    async fn an_unreadable_row_is_shown_before_anybody_fetched_it(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        damage(bench, "m00000").await?;
        let shown: Vec<_> = listed(&*store).await?.into_iter().map(|line| line.id).collect();
        ensure_eq!(shown, ids(&many(2)));
        store.get(&id("m00000")).await?;
        store.stats().await?;
        Ok(())
    }

    async fn an_unreadable_row_can_be_cancelled(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(3)).await?;
        damage(bench, "m00000").await?;
        damage(bench, "m00001").await?;
        ensure_eq!(other.cancel(&[id("m00000")]).await?, [Cancellation::Cancelled]);
        drain(&*store, 1).await?;
        ensure_eq!(other.cancel(&[id("m00001")]).await?, [Cancellation::Cancelled]);
        ensure!(listed(&*store).await?.is_empty());
        store.store(&many(2)).await?;
        drain(&*store, 2).await?;
        Ok(())
    }

    async fn an_unreadable_row_that_is_rescheduled_is_put_aside_again(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        damage(bench, "m00000").await?;
        for _ in 0..2 {
            nothing_is_free(&*store).await?;
            ensure!(store.next_due(&[]).await?.due.is_none());
            store.reschedule(&id("m00000"), Due::NOW).await?;
        }
        store.store(&many(2)[1..]).await?;
        ensure_eq!(drain(&*store, 1).await?[0].message.id, id("m00001"));
        Ok(())
    }
}

async fn damage(bench: &Bench, id: &str) -> Result<()> {
    bench.meddle(Meddling::UnreadableRow { endpoint: endpoint(), id: self::id(id) }).await
}

fn is_damaged(id: &str) -> bool {
    ["m00000", "m00003"].contains(&id)
}

async fn listed(store: &dyn DelayedMessageStore) -> Result<Vec<ScheduledSummary>> {
    list_all(store, ListQuery::new(Filter::default(), limit(10))).await
}
