//! The engine on the store: what a user gets who gives this store to `DelayedDelivery`.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use postdate_core::{
    Backend, Backoff, DelayedDelivery, DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _, Due,
    EncodedHeaders, MessageId, OutgoingMessage, Settings, TransactionMode, error_queue,
};
use tokio::time::{Instant, sleep};

use crate::{
    Meddling,
    bench::Bench,
    counting::Counting,
    drive::{deliver, depth, drain, hold_one},
    harness::{checks, ensure_eq},
    make::{HOUR, address, billing, endpoint, id, ids, limit, long_ago, many, message, message_for},
    patience::Patience,
    scripted::{Answer, Scripted},
};

/// Later than this is late, also on a machine that does a lot else.
const LATE: Duration = Duration::from_millis(1_500);

const QUIET: Duration = Duration::from_millis(1_500);

const RETRIES: u32 = 2;

checks! {
    async fn the_engine_sends_everything_once_and_empties_the_store(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(400)).await?;
        let to = Scripted::new(|_| Answer::Takes);
        let (one, other) = (start(bench, &to).await?, start(bench, &to).await?);
        let soon: Vec<_> =
            (0..100).map(|i| message(format!("soon{i}"), Due::after(Duration::from_millis(i)))).collect();
        one.send_batch(&soon).await?;
        to.takes("billing", 500).await?;
        is_empty(&*store).await?;
        let different = taken_ids(&to, "billing");
        ensure_eq!((different.len(), to.attempts("billing").len()), (500, 500));
        one.stop().await;
        other.stop().await;
        Ok(())
    }

    async fn the_engine_sends_a_message_as_it_was_stored(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let mut sent = many(3);
        sent[1].message.headers = EncodedHeaders::from_bytes(&b"\0\xff no headers of ours"[..]);
        sent[2].message.body = vec![0xff; 100_000].into();
        store.store(&sent).await?;
        let to = Scripted::new(|_| Answer::Takes);
        let delivery = start(bench, &to).await?;
        to.takes("billing", sent.len()).await?;
        delivery.stop().await;
        let came: Vec<OutgoingMessage> = to.taken("billing").into_iter().map(|sent| sent.message).collect();
        ensure!(came.iter().eq(sent.iter().map(|delayed| &delayed.message)), "it sent {came:?}");
        Ok(())
    }

    async fn the_engine_is_never_early_and_soon_on_time(bench: &Bench) -> Result<()> {
        let to = Scripted::new(|_| Answer::Takes);
        let delivery = start(bench, &to).await?;
        let mut due = Vec::new();
        for i in 0..20_u32 {
            let delay = Duration::from_millis(200) + 40 * i * Duration::from_millis(1);
            let name = format!("m{i}");
            let asked = Instant::now();
            delivery.send_batch(&[message(&name, Due::after(delay))]).await?;
            due.push((id(name), asked + delay, Instant::now() + delay));
        }
        to.takes("billing", due.len()).await?;
        delivery.stop().await;
        let sent = to.taken("billing");
        for (id, earliest, latest) in due {
            let sent = sent.iter().find(|sent| sent.message.id == id).context("not sent")?;
            ensure!(sent.at >= earliest, "{id} was sent {:?} early", earliest - sent.at);
            let late = sent.at.saturating_duration_since(latest);
            ensure!(late < LATE, "{id} was sent {late:?} late");
        }
        Ok(())
    }

    async fn a_poison_message_is_tried_as_often_as_it_may_be_and_holds_up_nobody(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(100)).await?;
        let to = Scripted::new(|message| poison(message, Answer::Refuses));
        let delivery = start(bench, &to).await?;
        to.takes("billing", 99).await?;
        to.takes("error", 1).await?;
        is_empty(&*store).await?;
        delivery.stop().await;
        bounded_and_explained(&to, "it refuses")?;
        let attempts = to.attempts("billing");
        let last = attempts.iter().rposition(|attempt| is_poison(&attempt.message));
        let healthy = attempts.iter().rposition(|attempt| attempt.taken);
        ensure!(last > healthy, "a healthy message came after the last attempt with the poison one");
        Ok(())
    }

    async fn a_panic_of_the_dispatcher_is_the_failure_of_one_message(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(20)).await?;
        let to = Scripted::new(|message| poison(message, Answer::Panics));
        let delivery = start(bench, &to).await?;
        to.takes("error", 1).await?;
        is_empty(&*store).await?;
        ensure!(delivery.is_running(), "delivery died");
        delivery.stop().await;
        ensure_eq!(taken_ids(&to, "billing").len(), 19);
        ensure_eq!(taken_ids(&to, "error"), BTreeSet::from([id("m00000")]));
        Ok(())
    }

    async fn while_the_error_queue_is_down_a_hopeless_message_stays(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let up = Arc::new(AtomicBool::new(false));
        let is_up = Arc::clone(&up);
        let to = Scripted::new(move |message| match message.destination.as_str() {
            "error" if !is_up.load(Relaxed) => Answer::IsDown,
            "error" => Answer::Takes,
            _ => Answer::Refuses,
        });
        let delivery = start(bench, &to).await?;
        let patience = Patience::with("a try to move the message to the error queue");
        while to.attempts("error").is_empty() {
            patience.a_moment().await?;
        }
        ensure!(store.get(&id("m00000")).await?.is_some(), "it is neither in the store nor in the error queue");
        up.store(true, Relaxed);
        to.takes("error", 1).await?;
        is_empty(&*store).await?;
        delivery.stop().await;
        bounded_and_explained(&to, "it refuses")
    }

    async fn an_outage_of_a_destination_consumes_no_retries(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(50)).await?;
        store.store_one(message_for("elsewhere", &address("elsewhere"), long_ago(60))).await?;
        let end = Instant::now() + Duration::from_millis(600);
        let to = Scripted::new(move |message| match message.destination.as_str() {
            "billing" if Instant::now() < end => Answer::IsDown,
            _ => Answer::Takes,
        });
        let delivery = start(bench, &to).await?;
        to.takes("elsewhere", 1).await?;
        let tries = || to.attempts("billing").iter().filter(|attempt| !attempt.taken).count();
        let patience = Patience::with("tries during the outage");
        while tries() < 3 {
            patience.a_moment().await?;
        }
        let seen = store.get(&id("m00001")).await?;
        ensure!(
            seen.as_ref().is_none_or(|seen| seen.message.failures == 0),
            "the outage was counted: {seen:?}"
        );
        to.takes("billing", 50).await?;
        is_empty(&*store).await?;
        delivery.stop().await;
        ensure!(to.attempts("error").is_empty(), "a message went to the error queue because of an outage");
        ensure_eq!(to.taken("billing").len(), 50);
        Ok(())
    }

    async fn a_stop_in_the_middle_leaves_nothing_held(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(600)).await?;
        let to = Scripted::new(|_| Answer::TakesAfter(Duration::from_millis(5)));
        let delivery = start(bench, &to).await?;
        to.takes("billing", 10).await?;
        ensure_eq!(delivery.stop().await.cut_off, 0);
        drop(delivery);
        let sent = taken_ids(&to, "billing");
        ensure!(sent.len() < 600, "it went on until everything was sent");
        // At once: what stopping gave back must not wait for the end of a lease.
        let asked = Instant::now();
        let rest = drain(&*other, 600 - sent.len()).await?;
        ensure!(bench.lease_term().is_none_or(|term| asked.elapsed() < term), "it was held for its lease");
        ensure!(rest.iter().all(|due| !sent.contains(&due.message.id)), "what was sent is still there");
        Ok(())
    }

    async fn what_a_delivery_held_that_was_cut_off_is_delivered_by_another(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(60)).await?;
        let to = Scripted::new(|_| Answer::TakesAfter(Duration::from_millis(5)));
        let delivery = start(bench, &to).await?;
        to.takes("billing", 5).await?;
        drop(delivery);
        drop(store);
        let mut all = taken_ids(&to, "billing");
        let patience = Patience::with("what was cut off").longer_by(bench.lease_term());
        // What was removed in time may be gone a moment later only.
        while other.stats().await?.pending > 0 {
            let rest = deliver(other.fetch(limit(100)).await?).await?;
            if rest.is_empty() {
                patience.a_moment().await?;
            }
            all.extend(rest.into_iter().map(|due| due.message.id));
        }
        ensure!(all.len() == 60, "{} of 60 messages are accounted for", all.len());
        Ok(())
    }

    async fn an_idle_engine_leaves_the_store_alone(bench: &Bench) -> Result<()> {
        let counting = Counting::new(bench.backend().await?);
        let to = Scripted::new(|_| Answer::Takes);
        bench.store().await?.store_one(message("later", Due::after(HOUR))).await?;
        let delivery = start_on(bench, counting.clone(), &to).await?;
        let patience = Patience::with("the engine to look for the next due time");
        while counting.calls() < 2 {
            patience.a_moment().await?;
        }
        sleep(QUIET / 3).await;
        let before = counting.calls();
        sleep(QUIET).await;
        let calls = counting.calls() - before;
        delivery.stop().await;
        ensure!(calls <= 2, "{calls} calls in {QUIET:?} in which nothing happened");
        Ok(())
    }

    async fn an_engine_does_not_spin_on_what_another_one_holds(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let held = hold_one(&*store).await?;
        let counting = Counting::new(bench.backend().await?);
        let to = Scripted::new(|_| Answer::Takes);
        let delivery = start_on(bench, counting.clone(), &to).await?;
        sleep(QUIET).await;
        // Waits of 50 ms that double: six until then, with a fetch and a question each.
        ensure!(counting.calls() <= 20, "{} calls in {QUIET:?}", counting.calls());
        held.deliver().await?;
        delivery.stop().await;
        ensure!(to.attempts("billing").is_empty(), "what another one held was sent");
        Ok(())
    }

    async fn an_engine_goes_past_an_unreadable_row_and_does_not_come_back_for_it(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(6)).await?;
        bench.meddle(Meddling::UnreadableRow { endpoint: endpoint(), id: id("m00000") }).await?;
        let counting = Counting::new(bench.backend().await?);
        let to = Scripted::new(|_| Answer::Takes);
        let delivery = start_on(bench, counting.clone(), &to).await?;
        to.takes("billing", 5).await?;
        sleep(QUIET / 3).await;
        let before = counting.calls();
        sleep(QUIET).await;
        let calls = counting.calls() - before;
        delivery.stop().await;
        ensure!(calls <= 2, "{calls} calls in {QUIET:?} for a row that cannot be read");
        ensure_eq!((to.attempts("billing").len(), store.stats().await?.pending), (5, 1));
        Ok(())
    }

    #[needs(SharedTransactions)]
    async fn in_one_transaction_everything_arrives_exactly_once_over_a_cut(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with_billing().await?;
        queues.create(&address("error")).await?;
        let store = bench.store().await?;
        let all = many(300);
        store.store(&all).await?;
        for cut in [true, true, false] {
            let delivery = DelayedDelivery::builder(endpoint().as_str())
                .store(bench.backend().await?)
                .dispatcher(queues.dispatcher())
                .transaction_mode(TransactionMode::TransactionScope)
                .settings(settings_with_batches_of(7))
                .start()
                .await?;
            let patience = Patience::with("messages to arrive").longer_by(bench.lease_term());
            let wanted = if cut { 20 } else { 300 };
            while depth(&*queues, &billing()).await? < wanted {
                patience.a_moment().await?;
            }
            if !cut {
                delivery.stop().await;
            }
        }
        is_empty(&*store).await?;
        let there = queues.browse(&billing(), 0, limit(1_000)).await?;
        let mut arrived: Vec<_> = there.into_iter().map(|queued| queued.message.id).collect();
        arrived.sort();
        ensure!(arrived == ids(&all), "{} messages arrived", arrived.len());
        Ok(())
    }
}

fn settings_with_batches_of(size: usize) -> Settings {
    let mut settings = Settings::default();
    settings.number_of_retries = RETRIES;
    settings.retry_backoff = Backoff::new(Duration::from_millis(200), Duration::from_millis(400));
    settings.batch_size = limit(size);
    settings
}

async fn start(bench: &Bench, to: &Arc<Scripted>) -> Result<DelayedDelivery> {
    start_on(bench, bench.backend().await?, to).await
}

async fn start_on(bench: &Bench, backend: impl Backend, to: &Arc<Scripted>) -> Result<DelayedDelivery> {
    let builder = DelayedDelivery::builder(endpoint().as_str()).store(backend).dispatcher(Arc::clone(to));
    Ok(builder.settings(settings_with_batches_of(50)).transaction_mode(bench.usual_mode()?).start().await?)
}

/// What the first of [`many`] messages comes to; all others are taken.
fn poison(message: &OutgoingMessage, answer: Answer) -> Answer {
    if is_poison(message) && message.destination == billing() { answer } else { Answer::Takes }
}

fn is_poison(message: &OutgoingMessage) -> bool {
    message.id == id("m00000")
}

/// The poison message was tried as often as the settings say, and its copy in the error queue tells why.
fn bounded_and_explained(to: &Scripted, error: &str) -> Result<()> {
    let attempts = to.attempts("billing").iter().filter(|attempt| is_poison(&attempt.message)).count();
    ensure!(attempts == RETRIES as usize + 1, "{attempts} attempts with {RETRIES} retries");
    let copies = to.taken("error");
    ensure!(copies.len() == 1, "{} messages in the error queue", copies.len());
    let failed = error_queue::restore(&copies[0].message)?;
    let original: DelayedMessage = many(1).remove(0);
    ensure_eq!(failed.original, original.message);
    ensure_eq!((failed.attempts, failed.error.as_str()), (RETRIES + 1, error));
    Ok(())
}

fn taken_ids(to: &Scripted, destination: &str) -> BTreeSet<MessageId> {
    to.taken(destination).into_iter().map(|sent| sent.message.id).collect()
}

/// Waits until nothing is stored any more.
async fn is_empty(store: &dyn DelayedMessageStore) -> Result<()> {
    let patience = Patience::with("the store to be empty");
    while store.stats().await?.pending > 0 {
        patience.a_moment().await?;
    }
    Ok(())
}
