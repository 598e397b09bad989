//! Never early, in order, and no delay too long (S3, L2, L8).

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use postdate_core::{DelayedMessageStore, DelayedMessageStoreExt as _, Due, StoreErrorKind};
use tokio::time::Instant;

use crate::{
    bench::Bench,
    drive::{drain, hold_one, nothing_is_free, refused, take_now},
    harness::{checks, ensure_eq},
    make::{DAY, HOUR, id, long_ago, many, message},
};

checks! {
    async fn a_message_is_not_due_before_its_time(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        for milliseconds in [50, 400] {
            let delay = Duration::from_millis(milliseconds);
            let asked = Instant::now();
            let due = store.store_one(message("m", Due::after(delay))).await?;
            let held = hold_one(&*store).await?;
            let passed = asked.elapsed();
            ensure!(passed >= delay, "fetched after {passed:?}, due after {delay:?}");
            ensure!(held.now >= due, "fetched at {} by the store's clock, due at {due}", held.now);
            held.deliver().await?;
        }
        Ok(())
    }

    async fn an_absolute_due_time_is_kept_by_the_clock_of_the_store(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let wanted = store.next_due(&[]).await?.now.checked_add(Duration::from_nanos(300_000_001))?;
        let due = store.store_one(message("m", Due::at(wanted))).await?;
        let held = hold_one(&*store).await?;
        ensure!(due >= wanted && held.now >= due);
        Ok(())
    }

    async fn due_times_are_rounded_up_to_the_resolution(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let resolution = bench.capabilities()?.resolution;
        let hour = store.next_due(&[]).await?.now.checked_add(HOUR)?;
        for (i, nanoseconds) in [0, 1, 499, 999, 1_001, 123_456_789, 999_999_999].into_iter().enumerate() {
            let wanted = hour.checked_add(Duration::from_nanos(nanoseconds))?;
            let name = format!("m{i}");
            let due = store.store_one(message(&name, Due::at(wanted))).await?;
            ensure!(due >= wanted, "{wanted} was rounded down to {due}");
            let more = Duration::try_from(due.duration_since(wanted))?;
            ensure!(
                more < resolution || more.is_zero(),
                "{wanted} became {due}, the resolution is {resolution:?}"
            );
            ensure!(store.get(&id(name)).await?.is_some_and(|seen| seen.message.due == due));
        }
        Ok(())
    }

    async fn what_is_past_is_due_at_once_and_comes_once(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let ten_years_ago = store.next_due(&[]).await?.now.checked_sub(3_650 * DAY)?;
        let past = [Due::at(Timestamp::UNIX_EPOCH), Due::at(ten_years_ago), Due::NOW];
        for due in past {
            store.store_one(message("m", due)).await?;
            drain(&*store, 1).await?;
        }
        Ok(())
    }

    async fn messages_come_in_the_order_of_their_due_times(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all = many(60);
        // 7 and 60 have no common divisor: every message once, in quite another order.
        let shuffled: Vec<_> = (0..60).map(|i| all[i * 7 % 60].clone()).collect();
        for batch in shuffled.chunks(9) {
            store.store(batch).await?;
        }
        let drained = drain(&*store, all.len()).await?;
        ensure!(drained.iter().map(|due| &due.message).eq(all.iter().map(|delayed| &delayed.message)));
        Ok(())
    }

    async fn messages_due_at_the_same_time_come_in_the_order_of_storing(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let names: Vec<_> = (0..40).map(|i| format!("m{}", i * 7 % 40)).collect();
        let all: Vec<_> = names.iter().map(|name| message(name, long_ago(0))).collect();
        for batch in all.chunks(7) {
            store.store(batch).await?;
        }
        let drained = drain(&*store, all.len()).await?;
        ensure!(drained.iter().map(|due| due.message.id.as_str()).eq(&names), "{drained:?}");
        Ok(())
    }

    async fn what_was_stored_late_with_an_earlier_due_time_is_found(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        for minutes in [50, 40, 60, 30, 10, 20] {
            other.store_one(message(format!("m{minutes}"), long_ago(minutes))).await?;
            ensure_eq!(take_now(&*store).await?.message.id, id(format!("m{minutes}")));
        }
        nothing_is_free(&*store).await
    }

    async fn a_long_delay_is_just_a_delay(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        // The first three stand around 2^31 and 2^32 milliseconds.
        for days in [24.8, 25.0, 49.7, 50.0, 3_650.0] {
            let delay = DAY.mul_f64(days);
            stored_far_ahead(bench, &*store, Due::after(delay)).await?;
            let at = store.next_due(&[]).await?.now.checked_add(delay)?;
            stored_far_ahead(bench, &*store, Due::at(at)).await?;
        }
        let end: Timestamp = "9999-12-30T00:00:00Z".parse()?;
        stored_far_ahead(bench, &*store, Due::at(end)).await
    }

    async fn the_last_instant_is_stored_or_refused_and_never_due(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        match store.store_one(message("m", Due::at(Timestamp::MAX))).await {
            Ok(due) => ensure_eq!(store.next_due(&[]).await?.due, Some(due)),
            refusal => refused(refusal, StoreErrorKind::Invalid)?,
        }
        nothing_is_free(&*store).await
    }

    async fn a_due_time_beyond_the_end_of_time_is_refused(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        for delay in [
            Duration::MAX,
            Duration::from_secs(u64::MAX),
            Duration::from_secs(i64::MAX as u64),
            365 * 9_000 * DAY,
        ] {
            let batch = [message("a", long_ago(0)), message("b", Due::after(delay))];
            refused(store.store(&batch).await, StoreErrorKind::Invalid)?;
        }
        ensure!(store.next_due(&[]).await?.due.is_none(), "a part of what was refused is there");
        nothing_is_free(&*store).await
    }

    async fn the_next_due_time_is_that_of_the_earliest_message(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        ensure!(store.next_due(&[]).await?.due.is_none(), "an empty store has a next due time");
        for hours in [3, 1, 2] {
            store.store_one(message(format!("m{hours}"), Due::after(hours * HOUR))).await?;
        }
        let first = store.get(&id("m1")).await?.map(|seen| seen.message.due);
        let next = store.next_due(&[]).await?;
        ensure_eq!(next.due, first);
        let longest = HOUR + bench.capabilities()?.resolution;
        ensure!(
            next.wait().is_some_and(|wait| wait <= longest),
            "{:?} until what is due in {HOUR:?}",
            next.wait()
        );
        Ok(())
    }
}

/// Stores a message alone, sees that it is due when it was asked for and not now, and takes it back.
async fn stored_far_ahead(bench: &Bench, store: &dyn DelayedMessageStore, due: Due) -> Result<()> {
    let resolution = bench.capabilities()?.resolution;
    let before = store.next_due(&[]).await?.now;
    let stored = store.store_one(message("far", due)).await?;
    let next = store.next_due(&[]).await?;
    let (Some(earliest), Some(latest)) = (due.resolve(before), due.resolve(next.now)) else {
        anyhow::bail!("{due:?} is no instant")
    };
    ensure!(
        earliest <= stored && stored <= latest.saturating_add(resolution)?,
        "{due:?} was stored as {stored}"
    );
    ensure_eq!(next.due, Some(stored));
    nothing_is_free(store).await?;
    store.cancel(&[id("far")]).await?;
    Ok(())
}
