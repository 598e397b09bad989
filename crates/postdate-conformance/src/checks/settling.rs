//! A claim that has settled a part of what it fetched: who sees it, and what being dropped does (S4, S14).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postdate_core::{
    Cancellation, Claim, ClaimKind, DelayedMessageStore, DelayedMessageStoreExt as _, Due, DueBatch, Filter,
    ListQuery, MessageState, Rescheduling, TransactionMode,
};
use tokio::time::sleep;

use crate::{
    bench::Bench,
    drive::{drain, failure, hold_one, list_all, nothing_is_free, take_now},
    harness::{checks, ensure_eq},
    make::{HOUR, id, ids, limit, many},
};

const SCOPE: TransactionMode = TransactionMode::TransactionScope;

checks! {
    /// At once, or where claims are transactions all of it when nothing is left to settle.
    async fn what_a_claim_settles_is_seen_by_others_as_its_kind_says(bench: &Bench) -> Result<()> {
        let is_transaction = bench.capabilities()?.claim == ClaimKind::Transaction;
        for mode in bench.capabilities()?.modes.iter().filter(|mode| **mode != SCOPE) {
            let (store, other) = (bench.store_in(*mode).await?, bench.store_in(*mode).await?);
            let mut claim = hold(&*store, 4).await?;
            ensure_eq!(claim.remove(&[id("m00000")]).await?, [true]);
            ensure_eq!(claim.increment_failure_count(&[failure(id("m00001"), HOUR, "no answer")]).await?, [true]);
            claim.release(&[id("m00002")]).await?;
            if is_transaction {
                all_are_held(&*store, &*other, 4).await.with_context(|| format!("mode {mode}"))?;
            } else {
                part_is_settled(&*other).await.with_context(|| format!("mode {mode}"))?;
            }
            ensure_eq!(claim.remove(&ids(&many(4))).await?, [false, false, false, true]);
            part_is_settled(&*other).await.with_context(|| format!("mode {mode}, at the end"))?;
            ensure!(other.get(&id("m00003")).await?.is_none(), "mode {mode}: what was removed last is there");
            ensure_eq!(take_now(&*store).await?.failures, 0);
            claim.renew().await?;
            claim.commit().await?;
            ensure_eq!(store.cancel(&[id("m00001")]).await?, [Cancellation::Cancelled]);
        }
        Ok(())
    }

    async fn in_transaction_scope_nothing_is_seen_by_others_before_the_commit(bench: &Bench) -> Result<()> {
        if !bench.capabilities()?.supports(SCOPE) {
            return bench.unmet("needs the mode TransactionScope");
        }
        let (store, other) = (bench.store_in(SCOPE).await?, bench.store_in(SCOPE).await?);
        let mut claim = hold(&*store, 3).await?;
        ensure_eq!(claim.remove(&[id("m00000"), id("m00002")]).await?, [true, true]);
        ensure_eq!(claim.increment_failure_count(&[failure(id("m00001"), HOUR, "no answer")]).await?, [true]);
        all_are_held(&*store, &*other, 3).await?;
        claim.commit().await?;
        let left = list_all(&*other, ListQuery::new(Filter::default(), limit(10))).await?;
        ensure!(left.len() == 1 && left[0].failures == 1, "after the commit there is {left:?}");
        ensure_eq!(left[0].state, MessageState::Pending);
        Ok(())
    }

    async fn a_dropped_claim_has_done_what_it_settled_but_in_transaction_scope(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let (store, other) = (bench.store_in(*mode).await?, bench.store_in(*mode).await?);
            let mut claim = hold(&*store, 3).await?;
            ensure_eq!(claim.remove(&[id("m00000")]).await?, [true]);
            ensure_eq!(claim.increment_failure_count(&[failure(id("m00001"), HOUR, "no answer")]).await?, [true]);
            drop(claim);
            // What is dropped may need a moment; then all of it is done at once.
            let first = hold_one(&*store).await?;
            if *mode == SCOPE {
                ensure!(first.id() == id("m00000"), "what was rolled back did not come back");
                drop(first);
                let drained = drain(&*store, 3).await?;
                ensure!(drained.iter().all(|due| due.failures == 0), "what was rolled back was counted");
                continue;
            }
            ensure!(first.id() == id("m00002"), "mode {mode}: {:?} came back, which was settled", first.id());
            ensure_eq!(first.message.failures, 0);
            ensure!(other.get(&id("m00000")).await?.is_none(), "mode {mode}: what was removed is there");
            let failures = other.get(&id("m00001")).await?.map(|seen| seen.message.failures);
            ensure_eq!(failures, Some(1));
            first.deliver().await?;
            ensure_eq!(other.cancel(&[id("m00001")]).await?, [Cancellation::Cancelled]);
        }
        Ok(())
    }

    async fn a_claim_that_gives_all_of_it_back_holds_nothing(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let store = bench.store_in(*mode).await?;
            let mut claim = hold(&*store, 3).await?;
            claim.release(&[id("m00001")]).await?;
            claim.release(&ids(&many(3))).await?;
            if *mode == SCOPE {
                claim.commit().await?;
            } else {
                ensure_eq!(claim.remove(&ids(&many(3))).await?, [false; 3]);
            }
            for message in many(3) {
                ensure_eq!(take_now(&*store).await?.message, message.message);
            }
        }
        Ok(())
    }

    async fn renewing_puts_off_the_end_of_a_claim(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut claim = hold(&*store, 2).await?;
        ensure_eq!(claim.remove(&[id("m00000")]).await?, [true]);
        let before = claim.expires();
        sleep(Duration::from_millis(20)).await;
        claim.renew().await?;
        let after = claim.expires();
        ensure!(before.is_some() == after.is_some() && before <= after, "renewed, it ends at {after:?}, not {before:?}");
        ensure!(before.is_none() || before < after, "a renewed claim ends no later");
        nothing_is_free(&*store).await?;
        ensure_eq!(claim.remove(&[id("m00001")]).await?, [true]);
        claim.commit().await?;
        nothing_is_free(&*store).await
    }
}

/// Stores messages and holds all of them by one claim.
async fn hold(store: &dyn DelayedMessageStore, count: usize) -> Result<Box<dyn Claim>> {
    store.store(&many(count)).await?;
    let DueBatch { messages, claim, .. } = store.fetch(limit(count)).await?;
    ensure!(messages.iter().map(|due| due.message.id.clone()).eq(ids(&many(count))), "fetched {messages:?}");
    Ok(claim)
}

/// Nobody else sees that anything was done.
async fn all_are_held(
    store: &dyn DelayedMessageStore,
    other: &dyn DelayedMessageStore,
    count: usize,
) -> Result<()> {
    let all = many(count);
    for handle in [store, other] {
        for id in ids(&all) {
            let seen =
                handle.get(&id).await?.with_context(|| format!("{id} is gone before the claim ended"))?;
            ensure!(
                (seen.state, seen.message.failures) == (MessageState::InFlight, 0),
                "{id} is shown as {seen:?} before the claim ended"
            );
            ensure_eq!(handle.reschedule(&id, Due::NOW).await?, Rescheduling::InFlight);
        }
        let lines = list_all(handle, ListQuery::new(Filter::default(), limit(10))).await?;
        ensure!(lines.iter().all(|line| line.state == MessageState::InFlight), "listed as {lines:?}");
        ensure_eq!(handle.cancel(&ids(&all)).await?, vec![Cancellation::InFlight; count]);
        let counts = handle.stats().await?;
        ensure_eq!((counts.pending, counts.failing), (count as u64, 0));
        nothing_is_free(handle).await?;
        handle.store(&all).await?;
    }
    Ok(())
}

/// The first of the messages is removed, the second has failed, the third was given back.
async fn part_is_settled(other: &dyn DelayedMessageStore) -> Result<()> {
    ensure!(other.get(&id("m00000")).await?.is_none(), "what was removed is there");
    for (name, failures) in [("m00001", 1), ("m00002", 0)] {
        let seen = other.get(&id(name)).await?.with_context(|| format!("{name} is gone"))?;
        ensure!(
            (seen.state, seen.message.failures) == (MessageState::Pending, failures),
            "{name} is shown as {seen:?}"
        );
    }
    Ok(())
}
