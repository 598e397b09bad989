//! Modes, and the transaction that a dispatcher may join (S14).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use postdate_core::{
    DelayedMessageStoreExt as _, DispatchErrorKind, DueBatch, Queues, StoreErrorKind, TransactionMode,
};

use crate::{
    bench::Bench,
    drive::{failure, hold_one, nothing_is_free, refused},
    harness::{checks, ensure_eq},
    make::{address, billing, endpoint, id, limit, long_ago, many, message_for},
};

checks! {
    async fn a_mode_is_accepted_exactly_if_the_store_says_so(bench: &Bench) -> Result<()> {
        let endpoint = endpoint();
        let backend = bench.backend().await?;
        backend.set_up(&endpoint).await?;
        let capabilities = bench.capabilities()?;
        for mode in TransactionMode::ALL {
            let opened = backend.open(&endpoint, mode).await;
            if capabilities.supports(mode) {
                opened.with_context(|| format!("mode {mode}"))?;
            } else {
                refused(opened, StoreErrorKind::Unsupported).with_context(|| format!("mode {mode}"))?;
            }
        }
        Ok(())
    }

    async fn in_every_mode_a_message_is_fetched_counted_and_removed(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let store = bench.store_in(*mode).await?;
            store.store(&many(1)).await?;
            hold_one(&*store).await?.fail(Duration::ZERO, "no answer").await?;
            let held = hold_one(&*store).await?;
            nothing_is_free(&*store).await?;
            let came = held.deliver().await?;
            ensure!(came.failures == 1, "mode {mode}: {} failures were counted", came.failures);
            ensure!(store.get(&id("m00000")).await?.is_none(), "mode {mode}: a removed message is there");
            nothing_is_free(&*store).await?;
        }
        Ok(())
    }

    async fn in_every_mode_a_dropped_claim_gives_back(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let store = bench.store_in(*mode).await?;
            store.store(&many(1)).await?;
            drop(hold_one(&*store).await?);
            let came = hold_one(&*store).await.with_context(|| format!("mode {mode}"))?.deliver().await?;
            ensure!(came.failures == 0, "mode {mode}");
        }
        Ok(())
    }

    async fn a_claim_lends_a_transaction_in_transaction_scope_only(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let store = bench.store_in(*mode).await?;
            store.store(&many(1)).await?;
            let mut held = hold_one(&*store).await?;
            let lends = held.claim.enlist().is_some();
            ensure!(lends == (*mode == TransactionMode::TransactionScope), "mode {mode}: lent: {lends}");
            held.deliver().await?;
        }
        Ok(())
    }

    #[needs(SharedTransactions)]
    async fn a_dispatcher_joins_the_transactions_of_its_own_place_only(bench: &Bench) -> Result<()> {
        let store = bench.store_in(TransactionMode::TransactionScope).await?;
        store.store(&many(1)).await?;
        let here = bench.queues().await?.dispatcher();
        let elsewhere = bench.elsewhere().await?;
        let there = elsewhere.queues().await?.dispatcher();
        let mut held = hold_one(&*store).await?;
        let joins = here.joins(held.claim.enlist().context("no transaction")?).await?;
        ensure!(joins, "the dispatcher of the same place does not join");
        let joins = there.joins(held.claim.enlist().context("no transaction")?).await?;
        ensure!(!joins, "the dispatcher of another place joins");
        Ok(())
    }

    #[needs(SharedTransactions)]
    async fn what_is_sent_within_a_transaction_appears_when_it_commits(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with_billing().await?;
        let store = bench.store_in(TransactionMode::TransactionScope).await?;
        store.store(&many(2)).await?;
        let mut held = hold_one(&*store).await?;
        let sent = held.message.message.clone();
        let outcomes = queues.dispatcher().dispatch(std::slice::from_ref(&sent), held.claim.enlist()).await;
        ensure!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        ensure!(arrived(&*queues).await?.is_empty(), "it appeared before the transaction was committed");
        held.deliver().await?;
        ensure_eq!(arrived(&*queues).await?, [sent.id.as_str()]);
        ensure!(store.get(&sent.id).await?.is_none(), "it was sent and is still there");
        Ok(())
    }

    #[needs(SharedTransactions)]
    async fn what_is_sent_within_a_dropped_transaction_never_appears(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with_billing().await?;
        let store = bench.store_in(TransactionMode::TransactionScope).await?;
        store.store(&many(1)).await?;
        let mut held = hold_one(&*store).await?;
        let sent = held.message.message.clone();
        for outcome in queues.dispatcher().dispatch(&[sent], held.claim.enlist()).await {
            outcome?;
        }
        ensure_eq!(held.claim.remove(&[id("m00000")]).await?, [true]);
        drop(held);
        let again = hold_one(&*store).await?;
        ensure_eq!(again.message.failures, 0);
        ensure!(arrived(&*queues).await?.is_empty(), "what was rolled back appeared");
        Ok(())
    }

    #[needs(SharedTransactions)]
    async fn a_missing_destination_does_not_spoil_the_transaction(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with_billing().await?;
        let store = bench.store_in(TransactionMode::TransactionScope).await?;
        store.store(&[message_for("lost", &address("nowhere"), long_ago(0)), many(2).remove(1)]).await?;
        let DueBatch { messages, mut claim, .. } = store.fetch(limit(2)).await?;
        ensure_eq!(messages.len(), 2);
        let sends: Vec<_> = messages.into_iter().map(|due| due.message).collect();
        let outcomes = queues.dispatcher().dispatch(&sends, claim.enlist()).await;
        let failed = outcomes.first().and_then(|outcome| outcome.as_ref().err()).map(|error| error.kind());
        ensure!(failed == Some(DispatchErrorKind::NoDestination) && outcomes[1].is_ok(), "{outcomes:?}");
        ensure_eq!(claim.remove(&[id("m00001")]).await?, [true]);
        let failure = failure(id("lost"), Duration::ZERO, "no destination");
        ensure_eq!(claim.increment_failure_count(&[failure]).await?, [true]);
        claim.commit().await?;
        ensure_eq!(arrived(&*queues).await?, ["m00001"]);
        ensure_eq!(hold_one(&*store).await?.message.failures, 1);
        Ok(())
    }
}

/// The ids of the messages in the usual queue.
async fn arrived(queues: &dyn Queues) -> Result<Vec<String>> {
    let there = queues.browse(&billing(), 0, limit(100)).await?;
    Ok(there.into_iter().map(|queued| queued.message.id.to_string()).collect())
}
