//! An instant is an instant, whatever clocks on walls show (L10, S3).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use postdate_core::{
    DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _, Due, Filter, ListQuery, StoreErrorKind,
    round_up,
};
use tokio::time::Instant;

use crate::{
    Meddling,
    bench::Bench,
    drive::{drain, hold_one, list_all, refused},
    harness::{checks, ensure_eq},
    make::{limit, message},
};

/// When clocks are changed: by an hour in New York, by half an hour on Lord Howe.
const PAST: [&str; 4] =
    ["2021-03-14T07:00:00Z", "2021-11-07T06:00:00Z", "2021-04-03T15:00:00Z", "2021-10-02T15:30:00Z"];
const AHEAD: [&str; 4] =
    ["2101-03-13T07:00:00Z", "2101-11-06T06:00:00Z", "2101-04-02T15:00:00Z", "2101-10-01T15:30:00Z"];

const ZONES: [&str; 2] = ["America/New_York", "Australia/Lord_Howe"];

const QUARTER: Duration = Duration::from_secs(900);

checks! {
    async fn instants_around_a_change_of_clocks_are_just_instants(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        nights(bench, &*store).await
    }

    async fn instants_are_the_same_in_every_time_zone_of_a_session(bench: &Bench) -> Result<()> {
        for zone in ZONES {
            let elsewhere = bench.elsewhere().await?;
            let store = elsewhere.store().await?;
            let all = around(PAST)?;
            store.store(&all).await?;
            elsewhere.meddle(Meddling::SessionTimeZone(zone)).await?;
            let there = elsewhere.store().await?;
            // What the one stored the other takes for the same, and fetches.
            store.store(&all).await?;
            there.store(&all).await.with_context(|| format!("in {zone}"))?;
            drain(&*there, all.len()).await?;
            nights(&elsewhere, &*there).await.with_context(|| format!("in {zone}"))?;
            not_early(&*there).await.with_context(|| format!("in {zone}"))?;
        }
        Ok(())
    }

    async fn odd_instants_come_back_or_are_refused(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let resolution = bench.capabilities()?.resolution;
        for (i, text) in [
            "2016-12-31T23:59:59.999999999Z",
            "2017-01-01T00:00:00.000000001Z",
            "2000-02-29T23:59:59.9999995Z",
            "1999-12-31T23:59:59.000000999Z",
            "1970-01-01T00:00:00.0000001Z",
            "1969-12-31T23:59:59.9999999Z",
            "1969-12-31T23:59:58.0000001Z",
            "1900-01-01T00:00:00.333333333Z",
            "1752-12-31T12:00:00Z",
            "0001-01-01T00:00:00Z",
        ]
        .into_iter()
        .enumerate()
        {
            let wanted: Timestamp = text.parse()?;
            match store.store_one(message(format!("m{i}"), Due::at(wanted))).await {
                Err(refusal) => refused(Err::<(), _>(refusal), StoreErrorKind::Invalid)?,
                Ok(due) => {
                    ensure_eq!(due, round_up(wanted, resolution));
                    let came = hold_one(&*store).await?.deliver().await?;
                    ensure!(came.due == due, "{text} was stored as {due} and came as {}", came.due);
                }
            }
        }
        Ok(())
    }
}

/// The nights of past years come in their order, those of years to come are found by their times.
async fn nights(bench: &Bench, store: &dyn DelayedMessageStore) -> Result<()> {
    let resolution = bench.capabilities()?.resolution;
    let past = around(PAST)?;
    let mut stored = store.store(&past).await?;
    rounded_up(&past, &stored, resolution)?;
    stored.sort();
    let came: Vec<_> = drain(store, past.len()).await?.iter().map(|due| due.due).collect();
    ensure!(came == stored, "they came as {came:?}");

    let ahead = around(AHEAD)?;
    let mut stored = store.store(&ahead).await?;
    rounded_up(&ahead, &stored, resolution)?;
    for (delayed, due) in ahead.iter().zip(&stored) {
        let seen = store.get(&delayed.message.id).await?.map(|seen| (seen.message.due, seen.next_attempt));
        ensure_eq!(seen, Some((*due, *due)));
    }
    stored.sort();
    for end in AHEAD {
        let end: Timestamp = end.parse()?;
        let before = listed(store, Filter { due_before: Some(end), ..Filter::default() }).await?;
        let from = listed(store, Filter { due_from: Some(end), ..Filter::default() }).await?;
        let at = stored.partition_point(|due| *due < end);
        ensure!(before == stored[..at], "due before {end}: {before:?}");
        ensure!(from == stored[at..], "due at {end} or later: {from:?}");
    }
    for delayed in ahead {
        store.cancel(&[delayed.message.id]).await?;
    }
    Ok(())
}

/// A message for every quarter of an hour around a change of clocks, and for a little more than that.
fn around(changes: [&str; 4]) -> Result<Vec<DelayedMessage>> {
    let mut all = Vec::new();
    for change in changes {
        let change: Timestamp = change.parse()?;
        for quarter in 0..=12 {
            let quarter_hour = change.checked_sub(6 * QUARTER)?.checked_add(quarter * QUARTER)?;
            for nanoseconds in [0, 1, 999_999_999] {
                let at = quarter_hour.checked_add(Duration::from_nanos(nanoseconds))?;
                all.push(message(at.to_string(), Due::at(at)));
            }
        }
    }
    Ok(all)
}

fn rounded_up(asked: &[DelayedMessage], stored: &[Timestamp], resolution: Duration) -> Result<()> {
    for (DelayedMessage { due, .. }, stored) in asked.iter().zip(stored) {
        let Due::At(wanted) = *due else { continue };
        ensure!(*stored == round_up(wanted, resolution), "{wanted} was stored as {stored}");
    }
    Ok(())
}

async fn listed(store: &dyn DelayedMessageStore, filter: Filter) -> Result<Vec<Timestamp>> {
    let lines = list_all(store, ListQuery::new(filter, limit(50))).await?;
    Ok(lines.into_iter().map(|line| line.due).collect())
}

/// A relative time is counted right in a session of any zone.
async fn not_early(store: &dyn DelayedMessageStore) -> Result<()> {
    let (asked, delay) = (Instant::now(), Duration::from_millis(100));
    store.store_one(message("soon", Due::after(delay))).await?;
    hold_one(store).await?.deliver().await?;
    ensure!(asked.elapsed() >= delay, "fetched after {:?}, due after {delay:?}", asked.elapsed());
    Ok(())
}
