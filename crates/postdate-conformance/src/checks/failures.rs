//! Failed attempts are counted, postponed and shown (S10).

use std::time::Duration;

use anyhow::{Result, ensure};
use postdate_core::{DelayedMessageStoreExt as _, Due, Failure, Filter, ListQuery};
use tokio::time::Instant;

use crate::{
    bench::Bench,
    drive::{drain, failure, hold_one, list_all, nothing_is_free},
    harness::{checks, ensure_eq},
    make::{HOUR, id, limit, long_ago, many, message},
};

checks! {
    async fn a_failed_message_comes_again_at_its_retry_time_and_not_before(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let retry_after = Duration::from_millis(400);
        let held = hold_one(&*store).await?;
        let failed = Instant::now();
        held.fail(retry_after, "no answer").await?;
        let again = hold_one(&*store).await?;
        ensure!(failed.elapsed() >= retry_after, "fetched {:?} after the failure", failed.elapsed());
        ensure_eq!(again.message.failures, 1);
        ensure!(Due::At(again.message.due) == long_ago(0), "a failure changed the due time");
        Ok(())
    }

    async fn failures_add_up(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        for failures in 0..4 {
            let held = hold_one(&*store).await?;
            ensure_eq!(held.message.failures, failures);
            held.fail(Duration::ZERO, "no answer").await?;
        }
        ensure_eq!(hold_one(&*store).await?.deliver().await?.failures, 4);
        Ok(())
    }

    async fn a_failed_message_does_not_stand_before_a_healthy_one(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(3)).await?;
        hold_one(&*store).await?.fail(HOUR, "no answer").await?;
        let came = [hold_one(&*store).await?.deliver().await?, hold_one(&*store).await?.deliver().await?];
        ensure!(came.map(|due| due.message.id) == [id("m00001"), id("m00002")]);
        nothing_is_free(&*store).await?;
        nothing_is_free(&*other).await
    }

    async fn the_next_due_time_of_a_failed_message_is_its_retry_time(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let before = store.next_due(&[]).await?.now;
        hold_one(&*store).await?.fail(HOUR, "no answer").await?;
        let next = store.next_due(&[]).await?;
        let seen = store.get(&id("m00000")).await?.map(|seen| seen.next_attempt);
        ensure!(next.due == seen && next.due.is_some());
        ensure!(next.due >= Some(before.checked_add(HOUR)?), "the retry is at {seen:?}");
        ensure!(next.wait().is_some_and(|wait| wait <= HOUR + Duration::from_secs(2)), "{:?}", next.wait());
        Ok(())
    }

    async fn the_last_error_is_shown(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        for text in ["first", "it's \"second\" \\ % ä€\u{1f4e6}"] {
            hold_one(&*store).await?.fail(Duration::ZERO, text).await?;
            let seen = store.get(&id("m00000")).await?.and_then(|seen| seen.last_error);
            ensure_eq!(seen.as_deref(), Some(text));
            let listed = list_all(&*store, ListQuery::new(Filter::default(), limit(10))).await?;
            ensure!(listed.len() == 1 && listed[0].last_error.as_deref() == Some(text));
        }
        Ok(())
    }

    async fn an_error_text_of_any_letters_does_not_keep_a_failure_from_being_counted(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let texts = ["", "\0", "a\0b", "\u{1b}[31m\r\n\t", "\u{feff}\u{202e}", &"x".repeat(1 << 20)];
        for (failures, text) in (1..).zip(texts) {
            hold_one(&*store).await?.fail(Duration::ZERO, text).await?;
            let seen = store.get(&id("m00000")).await?;
            ensure!(seen.is_some_and(|seen| seen.message.failures == failures), "{failures} failures");
        }
        drain(&*store, 1).await?;
        Ok(())
    }

    async fn of_a_long_error_the_beginning_is_kept(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let text = "äb".repeat(Failure::MAX_ERROR_CHARS);
        hold_one(&*store).await?.fail(Duration::ZERO, &text).await?;
        let kept = store.get(&id("m00000")).await?.and_then(|seen| seen.last_error);
        ensure!(
            kept.is_some_and(
                |kept| kept.chars().count() == Failure::MAX_ERROR_CHARS && text.starts_with(&kept)
            )
        );
        Ok(())
    }

    async fn a_failure_of_what_is_not_held_is_not_counted(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(3)).await?;
        let (mut first, second) = (hold_one(&*store).await?, hold_one(&*store).await?);
        let names = ["never there", "m00001", "m00002", "m00000", "m00000"];
        let failures = names.map(|name| failure(id(name), Duration::ZERO, "no answer"));
        let counted = first.claim.increment_failure_count(&failures).await?;
        ensure_eq!(counted, [false, false, false, true, false]);
        first.claim.commit().await?;
        second.claim.commit().await?;
        let failures: Vec<_> = drain(&*store, 3).await?.into_iter().map(|due| due.failures).collect();
        // The one that failed is tried again after the two that are due since long ago.
        ensure_eq!(failures, [0, 0, 1]);
        Ok(())
    }

    async fn a_long_retry_time_is_just_a_delay(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        for days in [25, 50, 3_650] {
            store.store_one(message("m", long_ago(0))).await?;
            let delay = 24 * days * HOUR;
            hold_one(&*store).await?.fail(delay, "no answer").await?;
            nothing_is_free(&*store).await?;
            let wait = store.next_due(&[]).await?.wait();
            ensure!(
                wait.is_some_and(|wait| wait > delay - HOUR && wait < delay + HOUR),
                "{wait:?} for {delay:?}"
            );
            store.cancel(&[id("m")]).await?;
        }
        Ok(())
    }

    #[needs(Durability)]
    async fn failures_survive_reopening(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        hold_one(&*store).await?.fail(Duration::ZERO, "no answer").await?;
        drop(store);
        let reopened = bench.store().await?;
        ensure_eq!(hold_one(&*reopened).await?.message.failures, 1);
        Ok(())
    }
}
