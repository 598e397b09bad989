//! Calls that are dropped wherever they wait happened as a whole or not at all; nothing is lost or held for good.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use postdate_core::{
    Cancellation, Claim, DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _, Due, DueBatch,
    DueMessage, EndpointName, Filter, ListQuery, MessageId, ScheduledSummary,
};

use crate::{
    bench::Bench,
    cuts::{Cuts, SWEEPS},
    drive::{deliver, drain, drain_with, failure, list_all, nothing_is_free},
    harness::{checks, ensure_eq},
    make::{HOUR, endpoint, id, ids, limit, long_ago, many, message},
    patience::{Patience, quiet, woken_by},
};

checks! {
    async fn a_dropped_call_of_store_happened_as_a_whole_or_not_at_all(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let trio = batch(number, 3);
            cuts.call(store.store(&trio)).await.transpose()?;
            let there = listed(&*other, number).await?.len();
            ensure!(there == 0 || there == 3, "{there} of 3 messages of a dropped call were stored");
            // It may be on its way still: storing the same again settles it.
            store.store(&trio).await?;
            ensure_eq!(listed(&*other, number).await?.len(), 3);
            drain(&*store, 3).await?;
        }
        Ok(())
    }

    async fn a_dropped_call_of_fetch_holds_nothing_for_good(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let (mut stored, mut came) = (0, Vec::new());
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            store.store(&batch(number, 3)).await?;
            stored += 3;
            if let Some(fetched) = cuts.call(store.fetch(limit(3))).await {
                came.extend(deliver(fetched?).await?);
            }
        }
        let left = usize::try_from(store.stats().await?.pending)?;
        ensure!(left + came.len() == stored, "{left} of {} messages are left", stored - came.len());
        // A claim whose answer nobody took may last as long as its lease.
        let patience = Patience::with("what dropped calls had fetched").longer_by(bench.lease_term());
        came.extend(drain_with(&*store, left, patience).await?);
        let different: BTreeSet<_> = came.iter().map(|due| &due.message.id).collect();
        ensure_eq!(different.len(), stored);
        Ok(())
    }

    async fn in_every_mode_a_dropped_removal_happened_as_a_whole_or_not_at_all(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let store = bench.store_in(*mode).await?;
            let mut cuts = Cuts::sweeps(SWEEPS);
            while let Some(number) = cuts.next()? {
                let (mut claim, pair) = hold_pair(&*store, number).await?;
                if let Some(removed) = cuts.call(claim.remove(&pair)).await {
                    ensure_eq!(removed?, [true, true]);
                }
                drop(claim);
                whole_or_none(&*store, number).await?;
                rest(bench, &*store, number).await?;
            }
        }
        Ok(())
    }

    async fn in_every_mode_a_dropped_commit_happened_as_a_whole_or_not_at_all(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let store = bench.store_in(*mode).await?;
            let mut cuts = Cuts::sweeps(SWEEPS);
            while let Some(number) = cuts.next()? {
                let (mut claim, pair) = hold_pair(&*store, number).await?;
                ensure_eq!(claim.remove(&pair).await?, [true, true]);
                let committed = cuts.call(claim.commit()).await.transpose()?.is_some();
                whole_or_none(&*store, number).await?;
                let came = rest(bench, &*store, number).await?.len();
                ensure!(came == 0 || !committed, "mode {mode}: {came} messages came after the commit");
            }
        }
        Ok(())
    }

    async fn a_dropped_failure_is_counted_for_the_whole_batch_or_not_at_all(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let (mut claim, pair) = hold_pair(&*store, number).await?;
            let failures: Vec<_> =
                pair.iter().map(|id| failure(id.clone(), Duration::ZERO, "no answer")).collect();
            cuts.call(claim.increment_failure_count(&failures)).await.transpose()?;
            drop(claim);
            let counts: Vec<_> = rest(bench, &*store, number).await?.iter().map(|due| due.failures).collect();
            ensure!(counts == [0, 0] || counts == [1, 1], "the failures of a dropped call: {counts:?}");
        }
        Ok(())
    }

    async fn after_a_dropped_release_nothing_is_held_and_nothing_lost(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let (mut claim, pair) = hold_pair(&*store, number).await?;
            cuts.call(claim.release(&pair)).await.transpose()?;
            drop(claim);
            let came = rest(bench, &*store, number).await?;
            ensure!(came.len() == 2 && came.iter().all(|due| due.failures == 0), "{came:?}");
        }
        Ok(())
    }

    async fn a_claim_survives_a_dropped_renewal(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let (mut claim, pair) = hold_pair(&*store, number).await?;
            cuts.call(claim.renew()).await.transpose()?;
            nothing_is_free(&*store).await?;
            ensure_eq!(claim.remove(&pair).await?, [true, true]);
            claim.commit().await?;
            nothing_is_free(&*store).await?;
        }
        Ok(())
    }

    async fn a_dropped_cancellation_happened_as_a_whole_or_not_at_all(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let pair = batch(number, 2);
            store.store(&pair).await?;
            cuts.call(other.cancel(&ids(&pair))).await.transpose()?;
            whole_or_none(&*store, number).await?;
            rest(bench, &*store, number).await?;
        }
        Ok(())
    }

    async fn a_dropped_rescheduling_happened_as_a_whole_or_not_at_all(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let one = message(format!("m{number}"), Due::after(HOUR));
            let (id, before) = (one.message.id.clone(), store.store_one(one).await?);
            cuts.call(other.reschedule(&id, Due::after(2 * HOUR))).await.transpose()?;
            let Some(seen) = store.get(&id).await? else { anyhow::bail!("{id} is gone") };
            let due = seen.message.due;
            ensure!(due == seen.next_attempt && due >= before, "due at {due}: {seen:?}");
            ensure_eq!(store.cancel(&[id]).await?, [Cancellation::Cancelled]);
        }
        ensure!(store.next_due(&[]).await?.due.is_none(), "more messages than were stored");
        Ok(())
    }

    async fn a_dropped_question_changes_nothing(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all = many(3);
        store.store(&all).await?;
        let query = ListQuery::new(Filter::default(), limit(2));
        for question in 0..4 {
            let mut cuts = Cuts::sweeps(SWEEPS / 4);
            while cuts.next()?.is_some() {
                match question {
                    0 => { cuts.call(store.get(&id("m00001"))).await.transpose()?; }
                    1 => { cuts.call(store.list(&query)).await.transpose()?; }
                    2 => { cuts.call(store.stats()).await.transpose()?; }
                    _ => { cuts.call(store.next_due(&[])).await.transpose()?; }
                }
            }
        }
        let drained = drain(&*store, all.len()).await?;
        ensure!(drained.iter().map(|due| due.message.id.clone()).eq(ids(&all)));
        Ok(())
    }

    #[needs(WakeUps)]
    async fn a_dropped_wait_misses_no_change(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut cuts = Cuts::sweeps(2);
        while let Some(number) = cuts.next()? {
            store.next_due(&[]).await?;
            quiet(&*store).await;
            let stored = store.store_one(message(format!("m{number}"), long_ago(0)));
            let (waited, stored) = tokio::join!(cuts.call(store.changed()), stored);
            stored?;
            if waited.is_none() {
                woken_by(&*store).await?;
            }
            drain(&*store, 1).await?;
        }
        Ok(())
    }

    async fn setting_up_and_opening_can_be_dropped_and_done_again(bench: &Bench) -> Result<()> {
        let (backend, mode) = (bench.backend().await?, bench.usual_mode()?);
        bench.store().await?.store(&many(1)).await?;
        for step in 0..3 {
            let mut cuts = Cuts::sweeps(SWEEPS / 2);
            while let Some(number) = cuts.next()? {
                let new = EndpointName::new(format!("new {step} {number}"))?;
                match step {
                    0 => drop(cuts.call(backend.set_up(&new)).await.transpose()?),
                    1 => drop(cuts.call(backend.set_up(&endpoint())).await.transpose()?),
                    _ => drop(cuts.call(backend.open(&endpoint(), mode)).await.transpose()?),
                }
                backend.set_up(&new).await?;
                let store = backend.open(&new, mode).await?;
                store.store(&many(1)).await?;
                drain(&*store, 1).await?;
            }
        }
        drain(&*bench.store().await?, 1).await?;
        Ok(())
    }
}

/// Messages that are due, of a number of their own.
fn batch(number: usize, count: usize) -> Vec<DelayedMessage> {
    (0..count).map(|i| message(format!("{number}/{i}"), long_ago(i))).collect()
}

/// Stores two messages and holds both.
async fn hold_pair(
    store: &dyn DelayedMessageStore,
    number: usize,
) -> Result<(Box<dyn Claim>, Vec<MessageId>)> {
    let pair = batch(number, 2);
    store.store(&pair).await?;
    let DueBatch { messages, claim, .. } = store.fetch(limit(2)).await?;
    ensure!(messages.iter().map(|due| due.message.id.clone()).eq(ids(&pair)), "fetched {messages:?}");
    Ok((claim, ids(&pair)))
}

async fn listed(store: &dyn DelayedMessageStore, number: usize) -> Result<Vec<ScheduledSummary>> {
    let filter = Filter { id_prefix: Some(format!("{number}/")), ..Filter::default() };
    list_all(store, ListQuery::new(filter, limit(10))).await
}

/// Fails if of two messages one is gone and the other is there.
async fn whole_or_none(store: &dyn DelayedMessageStore, number: usize) -> Result<()> {
    let there = listed(store, number).await?.len();
    ensure!(there == 0 || there == 2, "a dropped call did its work on one message of two");
    Ok(())
}

/// Delivers what is left of a batch, in order, until nothing is.
async fn rest(bench: &Bench, store: &dyn DelayedMessageStore, number: usize) -> Result<Vec<DueMessage>> {
    let patience = Patience::with("a message that a dropped call held").longer_by(bench.lease_term());
    let mut came = Vec::new();
    loop {
        came.extend(deliver(store.fetch(limit(2)).await?).await?);
        if listed(store, number).await?.is_empty() {
            return Ok(came);
        }
        patience.a_moment().await?;
    }
}
