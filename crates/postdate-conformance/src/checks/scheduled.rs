//! Looking at what is stored, cancelling and rescheduling it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use postdate_core::{
    Cancellation, Cursor, DelayedMessageStore, DelayedMessageStoreExt as _, Due, Filter, ListQuery,
    MessageId, Rescheduling, StoreErrorKind,
};

use crate::{
    bench::Bench,
    drive::{drain, hold_one, list_all, nothing_is_free, refused},
    harness::{checks, ensure_eq},
    make::{HOUR, address, billing, id, ids, limit, long_ago, many, message, message_for},
};

checks! {
    async fn following_the_cursors_shows_every_message_exactly_once(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all: Vec<_> = (0..100).map(|i| message(format!("m{i:03}"), long_ago(i / 10))).collect();
        store.store(&all).await?;
        let mut query = ListQuery::new(Filter::default(), limit(7));
        let mut seen = Vec::new();
        for round in 0.. {
            // Others come and go meanwhile, before and behind the cursor.
            store
                .store(&[
                    message(format!("before{round}"), long_ago(0)),
                    message(format!("behind{round}"), long_ago(11)),
                ])
                .await?;
            let page = store.list(&query).await?;
            seen.extend(
                page.messages.into_iter().map(|line| line.id).filter(|id| id.as_str().starts_with('m')),
            );
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
            store.cancel(&[id(format!("before{round}"))]).await?;
            ensure!(round < 1_000, "the listing does not end");
        }
        ensure!(seen == ids(&all), "{} of {} messages, or in another order", seen.len(), all.len());
        Ok(())
    }

    async fn the_list_is_in_the_order_of_the_next_attempts(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(3)).await?;
        store.store_one(message("soon", Due::after(HOUR))).await?;
        hold_one(&*store).await?.fail(2 * HOUR, "no answer").await?;
        let listed = listed(&*store, Filter::default()).await?;
        ensure_eq!(listed, ["m00001", "m00002", "soon", "m00000"].map(id));
        Ok(())
    }

    async fn the_list_shows_what_a_message_is(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let sent = message_for("m", &address("warehouse"), Due::after(HOUR));
        let due = store.store_one(sent.clone()).await?;
        let lines = list_all(&*store, ListQuery::new(Filter::default(), limit(10))).await?;
        ensure_eq!(lines.len(), 1);
        ensure_eq!((&lines[0].id, &lines[0].destination), (&sent.message.id, &sent.message.destination));
        ensure_eq!((lines[0].due, lines[0].next_attempt), (due, due));
        ensure_eq!((lines[0].failures, lines[0].last_error.as_deref()), (0, None));
        ensure_eq!(lines[0].body_bytes, sent.message.body.len() as u64);
        Ok(())
    }

    async fn a_filter_shows_what_matches_all_of_it(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(4)).await?;
        store.store_one(message_for("other", &address("warehouse"), long_ago(1))).await?;
        hold_one(&*store).await?.fail(HOUR, "no answer").await?;
        let Due::At(second) = long_ago(1) else { anyhow::bail!("long ago is an instant") };
        let cases = [
            (Filter { destination: Some(address("warehouse")), ..Filter::default() }, vec!["other"]),
            (Filter { destination: Some(address("Warehouse")), ..Filter::default() }, vec![]),
            (
                Filter { id_prefix: Some("m0000".into()), ..Filter::default() },
                vec!["m00001", "m00002", "m00003", "m00000"],
            ),
            (Filter { id_prefix: Some("M".into()), ..Filter::default() }, vec![]),
            (Filter { due_before: Some(second), ..Filter::default() }, vec!["m00000"]),
            (
                Filter { due_from: Some(second), ..Filter::default() },
                vec!["m00001", "other", "m00002", "m00003"],
            ),
            (Filter { min_failures: 1, ..Filter::default() }, vec!["m00000"]),
            (Filter { min_failures: 2, ..Filter::default() }, vec![]),
            (
                Filter {
                    destination: Some(billing()),
                    due_from: Some(second),
                    id_prefix: Some("m00002".into()),
                    ..Filter::default()
                },
                vec!["m00002"],
            ),
        ];
        for (filter, wanted) in cases {
            let shown = listed(&*store, filter.clone()).await?;
            ensure!(shown == wanted.into_iter().map(id).collect::<Vec<_>>(), "{filter:?} shows {shown:?}");
        }
        Ok(())
    }

    async fn hostile_text_in_a_filter_means_itself(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let names = [
            "100%",
            "100x",
            "a_b",
            "axb",
            "o'r",
            "o''r",
            "b\\s",
            "[a]x",
            "*",
            "'; DROP TABLE x; --",
            "ä",
            "a",
        ];
        let all: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, name)| message_for(name, &address(name), long_ago(i)))
            .collect();
        store.store(&all).await?;
        for name in names {
            let wanted: Vec<_> = names.into_iter().filter(|other| other.starts_with(name)).map(id).collect();
            let shown = listed(&*store, Filter { id_prefix: Some(name.into()), ..Filter::default() }).await?;
            ensure!(shown == wanted, "ids that begin with {name:?}: {shown:?}");
            let shown =
                listed(&*store, Filter { destination: Some(address(name)), ..Filter::default() }).await?;
            ensure!(shown == [id(name)], "messages for {name:?}: {shown:?}");
        }
        Ok(())
    }

    async fn text_that_is_in_no_id_is_a_filter_that_nothing_matches(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        for prefix in ["\0", "m\0", "m00000\0", "\n", &"m".repeat(10_000)] {
            let shown = listed(&*store, Filter { id_prefix: Some(prefix.to_owned()), ..Filter::default() }).await?;
            ensure!(shown.is_empty(), "ids that begin with {prefix:?}: {shown:?}");
        }
        Ok(())
    }

    async fn a_rescheduled_message_takes_its_new_place(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(4)).await?;
        store.reschedule(&id("m00003"), Due::at(Timestamp::UNIX_EPOCH)).await?;
        store.reschedule(&id("m00000"), Due::NOW).await?;
        let wanted = ["m00003", "m00001", "m00002", "m00000"].map(id);
        ensure_eq!(listed(&*store, Filter::default()).await?, wanted);
        let came: Vec<_> = drain(&*store, 4).await?.into_iter().map(|due| due.message.id).collect();
        ensure_eq!(came, wanted);
        Ok(())
    }

    async fn a_message_named_twice_is_cancelled_once(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let answers = store.cancel(&[id("m00000"), id("m00000")]).await?;
        ensure_eq!(answers, [Cancellation::Cancelled, Cancellation::NotFound]);
        Ok(())
    }

    async fn a_cursor_from_elsewhere_is_refused(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(3)).await?;
        for text in ["", "garbage", "'; DROP TABLE x; --", "9".repeat(60).as_str(), "\0", "ä"] {
            let mut query = ListQuery::new(Filter::default(), limit(1));
            query.after = Some(Cursor(text.to_owned()));
            refused(store.list(&query).await, StoreErrorKind::Invalid)?;
        }
        Ok(())
    }

    async fn a_cancelled_message_is_gone_and_not_sent(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(3)).await?;
        store.store_one(message("later", Due::after(HOUR))).await?;
        let answers = other.cancel(&[id("later"), id("never there"), id("m00001")]).await?;
        ensure_eq!(answers, [Cancellation::Cancelled, Cancellation::NotFound, Cancellation::Cancelled]);
        ensure_eq!(other.cancel(&[id("m00001")]).await?, [Cancellation::NotFound]);
        ensure!(store.get(&id("later")).await?.is_none());
        let came: Vec<_> = drain(&*store, 2).await?.into_iter().map(|due| due.message.id).collect();
        ensure_eq!(came, ["m00000", "m00002"].map(id));
        ensure!(store.next_due(&[]).await?.due.is_none());
        Ok(())
    }

    async fn a_held_message_is_too_late_to_cancel(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(2)).await?;
        let held = hold_one(&*store).await?;
        let answers = other.cancel(&[id("m00000"), id("m00001")]).await?;
        ensure_eq!(answers, [Cancellation::InFlight, Cancellation::Cancelled]);
        held.deliver().await?;
        ensure_eq!(other.cancel(&[id("m00000")]).await?, [Cancellation::NotFound]);
        nothing_is_free(&*store).await
    }

    async fn a_message_that_came_back_can_be_cancelled(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        hold_one(&*store).await?.fail(HOUR, "no answer").await?;
        ensure_eq!(other.cancel(&[id("m00000")]).await?, [Cancellation::Cancelled]);
        ensure!(store.next_due(&[]).await?.due.is_none());
        Ok(())
    }

    async fn a_rescheduled_message_is_due_at_its_new_time(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(1)).await?;
        let begin = store.next_due(&[]).await?.now;
        let Rescheduling::Rescheduled(later) = other.reschedule(&id("m00000"), Due::after(HOUR)).await?
        else {
            anyhow::bail!("a message that nobody holds was not rescheduled")
        };
        ensure!(later >= begin.checked_add(HOUR)?);
        let seen = store.get(&id("m00000")).await?.map(|seen| (seen.message.due, seen.next_attempt));
        ensure_eq!(seen, Some((later, later)));
        nothing_is_free(&*store).await?;

        let now = other.reschedule(&id("m00000"), Due::NOW).await?;
        let came = hold_one(&*store).await?.deliver().await?;
        ensure_eq!(now, Rescheduling::Rescheduled(came.due));
        Ok(())
    }

    async fn rescheduling_answers_what_is_so(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        ensure_eq!(other.reschedule(&id("never there"), Due::NOW).await?, Rescheduling::NotFound);
        store.store(&many(2)).await?;
        refused(other.reschedule(&id("m00001"), Due::after(Duration::MAX)).await, StoreErrorKind::Invalid)?;
        let held = hold_one(&*store).await?;
        ensure_eq!(other.reschedule(&held.id(), Due::after(HOUR)).await?, Rescheduling::InFlight);
        held.deliver().await?;
        ensure_eq!(other.reschedule(&id("m00000"), Due::after(HOUR)).await?, Rescheduling::NotFound);
        let untouched = hold_one(&*store).await?;
        ensure_eq!(Due::At(untouched.message.due), long_ago(1));
        Ok(())
    }

    async fn rescheduling_keeps_the_failures_and_ends_the_postponement(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        hold_one(&*store).await?.fail(HOUR, "no answer").await?;
        nothing_is_free(&*store).await?;
        store.reschedule(&id("m00000"), Due::NOW).await?;
        ensure_eq!(hold_one(&*store).await?.message.failures, 1);
        Ok(())
    }

    async fn the_counts_are_right(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let empty = store.stats().await?;
        ensure_eq!((empty.pending, empty.overdue, empty.in_flight, empty.failing), (0, 0, 0, 0));
        ensure_eq!((empty.oldest_overdue, empty.next_due), (None, None));

        store.store(&many(4)).await?;
        store.store_one(message("later", Due::after(2 * HOUR))).await?;
        hold_one(&*store).await?.fail(HOUR, "no answer").await?;
        let held = hold_one(&*store).await?;
        let counts = store.stats().await?;
        ensure_eq!((counts.pending, counts.overdue, counts.failing), (5, 3, 1));
        ensure!(counts.in_flight <= 1, "{} in flight", counts.in_flight);
        ensure_eq!(counts.oldest_overdue.map(Due::At), Some(long_ago(1)));
        let retry = store.get(&id("m00000")).await?.map(|seen| seen.next_attempt);
        ensure!(counts.next_due == retry && counts.next_due > Some(counts.now));
        drop(held);
        Ok(())
    }
}

/// The ids that a filter shows, in order, each at most once.
async fn listed(store: &dyn DelayedMessageStore, filter: Filter) -> Result<Vec<MessageId>> {
    let lines = list_all(store, ListQuery::new(filter, limit(2))).await?;
    let ids: Vec<_> = lines.into_iter().map(|line| line.id).collect();
    ensure!(ids.iter().collect::<BTreeSet<_>>().len() == ids.len(), "shown twice: {ids:?}");
    Ok(ids)
}
