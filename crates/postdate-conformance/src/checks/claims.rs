//! A claim is exclusive, gives back what it does not settle, and is fenced (S4, S5).

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt as _;
use postdate_core::{
    ClaimKind, DelayedMessageStoreExt as _, Due, FetchDue, Filter, ListQuery, MessageState, StoreError,
    StoreErrorKind,
};
use tokio::time::{Instant, sleep};

use crate::{
    bench::Bench,
    drive::{
        deliver, drain, drain_with, failure, hold_one, hold_one_with, list_all, nothing_is_free, refused,
    },
    harness::{checks, ensure_eq},
    make::{HOUR, address, billing, id, ids, limit, long_ago, many, message, message_for},
    patience::Patience,
};

checks! {
    async fn a_fetched_message_is_hidden_from_other_handles(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        let held = hold_one(&*store).await?;
        nothing_is_free(&*other).await?;
        held.deliver().await?;
        nothing_is_free(&*other).await
    }

    async fn a_fetched_message_is_hidden_from_later_fetches(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        let (first, second) = (hold_one(&*store).await?, hold_one(&*store).await?);
        ensure_eq!((first.id(), second.id()), (id("m00000"), id("m00001")));
        nothing_is_free(&*store).await
    }

    async fn a_held_message_is_shown_as_being_in_flight(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        let held = hold_one(&*store).await?;
        let state = store.get(&held.id()).await?.map(|seen| seen.state);
        ensure_eq!(state, Some(MessageState::InFlight));
        let listed = list_all(&*store, ListQuery::new(Filter::default(), limit(10))).await?;
        let states: Vec<_> = listed.iter().map(|line| line.state).collect();
        ensure_eq!(states, [MessageState::InFlight, MessageState::Pending]);
        Ok(())
    }

    async fn others_are_told_that_what_is_due_is_held(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        let _held = hold_one(&*store).await?;
        let batch = other.fetch(limit(1)).await?;
        ensure!(batch.messages.is_empty() && batch.contended);
        Ok(())
    }

    async fn a_removed_message_is_gone(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        hold_one(&*store).await?.deliver().await?;
        for handle in [&store, &other] {
            ensure!(handle.get(&id("m00000")).await?.is_none());
            ensure!(handle.next_due(&[]).await?.due.is_none());
            nothing_is_free(&**handle).await?;
        }
        Ok(())
    }

    async fn what_was_removed_is_not_removed_again(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let mut held = hold_one(&*store).await?;
        let first = held.claim.remove(&[id("never there"), id("m00000")]).await?;
        ensure_eq!(first, [false, true]);
        let again = held.claim.remove(&[id("m00000")]).await?;
        ensure_eq!(again, [false]);
        held.claim.commit().await?;
        nothing_is_free(&*store).await
    }

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

    async fn a_dropped_claim_gives_its_messages_back(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(3)).await?;
        for _ in 0..3 {
            drop(hold_one(&*store).await?);
        }
        let drained = drain(&*store, 3).await?;
        ensure!(drained.iter().all(|due| due.failures == 0), "giving back was counted as a failure");
        Ok(())
    }

    async fn a_committed_claim_gives_back_what_it_did_not_settle(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        let mut held = hold_one(&*store).await?;
        ensure!(held.claim.remove(&[]).await?.is_empty());
        held.claim.commit().await?;
        drain(&*store, 2).await?;
        Ok(())
    }

    async fn a_released_message_is_free_at_once(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let mut first = hold_one(&*store).await?;
        first.claim.release(&[id("m00000")]).await?;
        let second = hold_one(&*store).await?;
        ensure!(first.claim.remove(&[id("m00000")]).await? == [false], "what was released was removed");
        first.claim.commit().await?;
        ensure_eq!(second.deliver().await?.failures, 0);
        nothing_is_free(&*store).await
    }

    async fn no_more_messages_are_fetched_than_were_asked_for(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(10)).await?;
        for most in [1, 2, 3] {
            let batch = store.fetch(limit(most)).await?;
            ensure!((1..=most).contains(&batch.messages.len()), "{} of {most}", batch.messages.len());
            deliver(batch).await?;
        }
        Ok(())
    }

    async fn messages_for_excepted_destinations_are_passed_over(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let (down, up) = (address("down"), address("up"));
        for i in 0..4 {
            let destination = if i < 3 { &down } else { &up };
            store.store_one(message_for(format!("m{i}"), destination, long_ago(i))).await?;
        }
        let except = [down.clone(), address("Up"), address("nobody")];
        let batch = store.fetch_due(FetchDue { limit: limit(10), except: &except }).await?;
        let came: Vec<_> = deliver(batch).await?.into_iter().map(|due| due.message.destination).collect();
        ensure_eq!(came, [up]);
        let batch = store.fetch_due(FetchDue { limit: limit(10), except: &[down] }).await?;
        ensure!(batch.messages.is_empty());
        drop(batch);
        drain(&*store, 3).await?;
        Ok(())
    }

    async fn the_next_due_time_looks_past_excepted_destinations(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store_one(message_for("a", &address("down"), long_ago(0))).await?;
        let later = store.store_one(message("b", Due::after(HOUR))).await?;
        ensure_eq!(store.next_due(&[address("down")]).await?.due, Some(later));
        ensure!(store.next_due(&[address("down"), billing()]).await?.due.is_none());
        ensure_eq!(store.next_due(&[]).await?.wait(), Some(Duration::ZERO));
        Ok(())
    }

    async fn the_next_due_time_looks_past_what_is_held(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let held = hold_one(&*store).await?;
        let next = store.next_due(&[]).await?;
        match bench.capabilities()?.claim {
            ClaimKind::Lease(term) => {
                let wait = next.wait();
                let longest = term + bench.capabilities()?.resolution;
                ensure!(
                    wait.is_some_and(|wait| !wait.is_zero() && wait <= longest),
                    "{wait:?} for a lease of {term:?}"
                );
            }
            _ => ensure!(next.due.is_none()),
        }
        let soon = store.store_one(message("soon", Due::after(Duration::from_millis(1)))).await?;
        ensure_eq!(store.next_due(&[]).await?.due, Some(soon));
        drop(held);
        Ok(())
    }

    async fn a_claim_says_when_it_ends(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let before = std::time::Instant::now();
        let expires = hold_one(&*store).await?.claim.expires();
        match (bench.lease_term(), expires) {
            (None, None) => {}
            (None, Some(_)) => anyhow::bail!("a claim without a lease ends"),
            (Some(_), None) => anyhow::bail!("a lease has no end"),
            (Some(term), Some(end)) => {
                ensure!(
                    end > before && end <= std::time::Instant::now() + term,
                    "the lease of {term:?} ends otherwise"
                );
            }
        }
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

    async fn a_dropped_call_of_fetch_holds_nothing_for_good(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(50)).await?;
        for _ in 0..50 {
            drop(store.fetch(limit(5)).now_or_never());
        }
        // A claim whose answer nobody took may last as long as its lease.
        let patience = Patience::with("what dropped calls had fetched").longer_by(bench.lease_term());
        drain_with(&*store, 50, patience).await?;
        Ok(())
    }
}

/// Fails if a claim that was lost did something, or did not say that it did nothing.
fn nothing_done(answer: Result<Vec<bool>, StoreError>) -> Result<()> {
    match answer {
        Ok(done) => ensure!(done.iter().all(|done| !done), "a stale claim was answered with {done:?}"),
        refusal => refused(refusal, StoreErrorKind::ClaimLost)?,
    }
    Ok(())
}
