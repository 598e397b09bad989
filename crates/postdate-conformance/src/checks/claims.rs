//! A claim is exclusive and gives back what it does not settle (S4).

use std::time::Duration;

use anyhow::{Result, ensure};
use postdate_core::{ClaimKind, DelayedMessageStoreExt as _, Due, FetchDue, Filter, ListQuery, MessageState};
use tokio::time::Instant;

use crate::{
    bench::Bench,
    drive::{deliver, drain, failure, hold_one, list_all, nothing_is_free},
    harness::{checks, ensure_eq},
    make::{HOUR, address, billing, id, limit, long_ago, many, message, message_for},
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

    async fn a_dropped_claim_gives_its_messages_back(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(3)).await?;
        let asked = Instant::now();
        for _ in 0..3 {
            drop(hold_one(&*store).await?);
        }
        let drained = drain(&*store, 3).await?;
        ensure!(drained.iter().all(|due| due.failures == 0), "giving back was counted as a failure");
        before_any_lease_ended(bench, asked)
    }

    async fn a_committed_claim_gives_back_what_it_did_not_settle(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        let mut held = hold_one(&*store).await?;
        let asked = Instant::now();
        ensure!(held.claim.remove(&[]).await?.is_empty());
        held.claim.commit().await?;
        drain(&*store, 2).await?;
        before_any_lease_ended(bench, asked)
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
        match (bench.capabilities()?.claim, expires) {
            (ClaimKind::Lease(term), Some(end)) => ensure!(
                end > before && end <= std::time::Instant::now() + term,
                "the lease of {term:?} ends otherwise"
            ),
            (ClaimKind::Lease(_), None) => anyhow::bail!("a lease has no end"),
            // A server may end transactions that are idle.
            (ClaimKind::Transaction, Some(end)) => ensure!(end > before, "it ended before it was taken"),
            (_, Some(_)) => anyhow::bail!("a claim without a lease ends"),
            (_, None) => {}
        }
        Ok(())
    }

    async fn in_every_mode_a_message_named_twice_in_a_call_is_settled_once(bench: &Bench) -> Result<()> {
        for mode in bench.capabilities()?.modes {
            let store = bench.store_in(*mode).await?;
            store.store(&many(2)).await?;
            let (mut first, mut second) = (hold_one(&*store).await?, hold_one(&*store).await?);
            ensure_eq!(first.claim.remove(&[first.id(), first.id()]).await?, [true, false]);
            let failure = failure(second.id(), Duration::ZERO, "no answer");
            let counted = second.claim.increment_failure_count(&[failure.clone(), failure]).await?;
            ensure_eq!(counted, [true, false]);
            first.claim.commit().await?;
            second.claim.commit().await?;
            ensure_eq!(drain(&*store, 1).await?[0].failures, 1);
        }
        Ok(())
    }

    async fn calls_for_nothing_do_nothing(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let mut held = hold_one(&*store).await?;
        ensure!(held.claim.remove(&[]).await?.is_empty());
        ensure!(held.claim.increment_failure_count(&[]).await?.is_empty());
        held.claim.release(&[]).await?;
        ensure!(store.store(&[]).await?.is_empty() && store.cancel(&[]).await?.is_empty());
        nothing_is_free(&*store).await?;
        held.deliver().await?;
        let batch = store.fetch(limit(5)).await?;
        ensure!(batch.messages.is_empty() && !batch.contended, "an empty store has something");
        Ok(batch.claim.commit().await?)
    }

    async fn a_claim_outlives_the_handle_that_it_is_from(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(2)).await?;
        let (first, second) = (hold_one(&*store).await?, hold_one(&*store).await?);
        drop(store);
        nothing_is_free(&*other).await?;
        first.deliver().await?;
        drop(second);
        drain(&*other, 1).await?;
        Ok(())
    }

    async fn when_a_handle_is_closed_another_one_goes_on(bench: &Bench) -> Result<()> {
        let first = bench.store().await?;
        let all = many(9);
        first.store(&all).await?;
        let mut handle = first;
        for message in &all {
            let held = hold_one(&*handle).await?;
            ensure_eq!(held.id(), message.message.id);
            let next = bench.store().await?;
            drop(handle);
            held.deliver().await?;
            handle = next;
        }
        nothing_is_free(&*handle).await
    }
}

/// Fails if so much time has passed that the end of a lease may have done what should have been done at once.
fn before_any_lease_ended(bench: &Bench, asked: Instant) -> Result<()> {
    let passed = asked.elapsed();
    ensure!(bench.lease_term().is_none_or(|term| passed < term), "it came only after the end of its lease");
    Ok(())
}
