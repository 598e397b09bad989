//! A claim is fenced: once it is lost it does nothing, and says so (S5, S4).

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use postdate_core::{DelayedMessageStoreExt as _, StoreError, StoreErrorKind, TransactionMode};
use tokio::time::{Instant, sleep};

use crate::{
    Meddling,
    bench::Bench,
    drive::{drain, failure, hold_one, hold_one_with, nothing_is_free, refused},
    harness::{checks, ensure_eq},
    make::{HOUR, id, ids, limit, many},
    patience::Patience,
};

checks! {
    async fn a_claim_does_not_remove_what_another_one_holds(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        let (mut first, second) = (hold_one(&*store).await?, hold_one(&*store).await?);
        let answers = first.claim.remove(&[second.id(), first.id()]).await?;
        ensure_eq!(answers, [false, true]);
        first.claim.commit().await?;
        second.deliver().await?;
        Ok(())
    }

    #[needs(Leases)]
    async fn a_lease_ends_and_its_messages_are_free(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        let asked = Instant::now();
        let lost = hold_one(&*store).await?;
        let patience = Patience::with("the end of a lease").longer_by(bench.lease_term());
        let held = hold_one_with(&*other, patience).await?;
        let term = bench.lease_term().unwrap_or_default();
        ensure!(asked.elapsed() >= term, "a lease of {term:?} ended after {:?}", asked.elapsed());
        ensure!(held.deliver().await?.failures == 0, "the end of a lease was counted as a failure");
        drop(lost);
        nothing_is_free(&*store).await
    }

    #[needs(Leases)]
    async fn what_a_stale_claim_does_is_refused(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let all = many(3);
        store.store(&all).await?;
        let fetched = store.fetch(limit(3)).await?;
        ensure!(!fetched.messages.is_empty());
        let mut stale = fetched.claim;
        let patience = Patience::with("the end of a lease").longer_by(bench.lease_term());
        let held = hold_one_with(&*other, patience).await?;

        nothing_done(stale.remove(&ids(&all)).await)?;
        let failures: Vec<_> = ids(&all).into_iter().map(|id| failure(id, HOUR, "stale")).collect();
        nothing_done(stale.increment_failure_count(&failures).await)?;
        refused(stale.renew().await, StoreErrorKind::ClaimLost)?;
        drop(stale);

        held.deliver().await?;
        let drained = drain(&*other, 2).await?;
        ensure!(drained.iter().all(|due| due.failures == 0));
        Ok(())
    }

    #[needs(Leases)]
    async fn what_a_stale_claim_gives_back_stays_with_its_new_holder(bench: &Bench) -> Result<()> {
        // All at once: each waits for the end of leases.
        let modes = bench.capabilities()?.modes;
        try_join_all(modes.iter().map(|mode| stays_with_its_new_holder(bench, *mode))).await?;
        Ok(())
    }

    async fn a_claim_whose_transaction_broke_has_done_nothing_and_says_so(bench: &Bench) -> Result<()> {
        let all = many(3);
        for mode in bench.capabilities()?.modes {
            let (store, other) = (bench.store_in(*mode).await?, bench.store_in(*mode).await?);
            store.store(&all).await?;
            let fetched = store.fetch(limit(3)).await?;
            ensure_eq!(fetched.messages.len(), 3);
            let mut broken = fetched.claim;
            ensure_eq!(broken.remove(&ids(&all)[..1]).await?, [true]);
            bench.meddle(Meddling::BrokenClaims).await?;
            // In transaction scope nothing is done before the commit, which then fails.
            if *mode != TransactionMode::TransactionScope {
                nothing_done(broken.remove(&ids(&all)[1..]).await)?;
            }
            refused(broken.renew().await, StoreErrorKind::ClaimLost)?;
            refused(broken.commit().await, StoreErrorKind::ClaimLost)?;
            let drained = drain(&*other, 3).await?;
            ensure!(drained.iter().all(|due| due.failures == 0), "a broken claim was counted: {drained:?}");
        }
        Ok(())
    }

    async fn a_claim_cannot_touch_what_it_gave_back(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        let ids = [id("m00000")];
        let mut first = hold_one(&*store).await?;
        first.claim.release(&ids).await?;
        let second = hold_one(&*store).await?;
        nothing_done(first.claim.remove(&ids).await)?;
        let failure = failure(id("m00000"), HOUR, "stale");
        nothing_done(first.claim.increment_failure_count(&[failure]).await)?;
        first.claim.release(&ids).await?;
        nothing_is_free(&*other).await?;
        first.claim.commit().await?;
        nothing_is_free(&*other).await?;
        ensure_eq!(second.deliver().await?.failures, 0);
        Ok(())
    }

    #[needs(Leases)]
    async fn a_renewed_claim_holds_on(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        let mut held = hold_one(&*store).await?;
        let term = bench.lease_term().unwrap_or_default();
        let begin = Instant::now();
        while begin.elapsed() < term + term / 2 {
            nothing_is_free(&*other).await?;
            let end = held.claim.expires();
            sleep(term / 8).await;
            held.claim.renew().await?;
            ensure!(held.claim.expires() > end, "a renewed claim ends no later");
        }
        held.deliver().await?;
        nothing_is_free(&*other).await
    }
}

async fn stays_with_its_new_holder(bench: &Bench, mode: TransactionMode) -> Result<()> {
    let elsewhere = bench.elsewhere().await?;
    let (store, other) = (elsewhere.store_in(mode).await?, elsewhere.store_in(mode).await?);
    store.store(&many(3)).await?;
    let [mut released, mut committed, dropped] =
        [hold_one(&*store).await?, hold_one(&*store).await?, hold_one(&*store).await?];
    if mode == TransactionMode::TransactionScope {
        // What it was to do on commit must not happen either.
        ensure_eq!(committed.claim.remove(&[committed.id()]).await?, [true]);
    }
    let patience = Patience::with("the end of three leases").longer_by(bench.lease_term());
    let mut holders = Vec::new();
    while holders.len() < 3 {
        holders.push(hold_one_with(&*other, patience).await?);
    }
    released.claim.release(&ids(&many(3))).await?;
    match committed.claim.commit().await {
        Ok(()) if mode != TransactionMode::TransactionScope => {}
        answer => refused(answer, StoreErrorKind::ClaimLost)?,
    }
    drop((released, dropped));
    nothing_is_free(&*store).await?;
    for held in holders {
        held.deliver().await?;
    }
    Ok(())
}

/// Fails if a claim that was lost did something, or did not say that it did nothing.
fn nothing_done(answer: Result<Vec<bool>, StoreError>) -> Result<()> {
    match answer {
        Ok(done) => ensure!(done.iter().all(|done| !done), "a stale claim was answered with {done:?}"),
        refusal => refused(refusal, StoreErrorKind::ClaimLost)?,
    }
    Ok(())
}
