//! Of several who want the same message exactly one gets it (S4, S13).

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use postdate_core::{
    Cancellation, DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _, Due, DueBatch, MessageId,
    Rescheduling,
};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{deliver, hold_one, nothing_is_free},
    harness::{checks, ensure_eq},
    make::{HOUR, ids, limit, long_ago, many, message},
    patience::Patience,
};

const ROWS: usize = 1_000;

const RACES: usize = 10_000;
const FEWEST_RACES: usize = 1_000;
const LONG_ENOUGH: Duration = Duration::from_secs(8);

/// So many messages are raced for at a time.
const FIELD: usize = 100;

checks! {
    async fn many_who_fetch_at_once_never_hold_the_same_message(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store(&many(ROWS)).await?;
        let holders = Arc::new(Holders::default());
        let mut tasks = JoinSet::new();
        for i in 0..16 {
            let store = [&store, &other][i % 2].clone();
            tasks.spawn(take_part(store, Arc::clone(&holders), i));
        }
        while let Some(took_part) = tasks.join_next().await {
            took_part??;
        }
        nothing_is_free(&*store).await
    }

    /// On a store that is slow there are fewer, but a thousand at least.
    async fn of_a_cancellation_and_a_claim_exactly_one_wins_in_ten_thousand_races(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let begin = Instant::now();
        let (mut raced, mut cancelled) = (0, 0);
        let fetches = if bench.claims_have_connections() { [20, 35] } else { [2, 7] };
        while raced < RACES && (raced < FEWEST_RACES || begin.elapsed() < LONG_ENOUGH) {
            let all: Vec<_> =
                (0..FIELD).map(|i| message(format!("m{}", raced + i), long_ago(raced + i))).collect();
            store.store(&all).await?;
            let fetchers = fetches.map(|most| tokio::spawn(fetch_all(Arc::clone(&store), limit(most))));
            let operators = [(&store, 3), (&other, 10)].map(|(handle, at_once)| {
                tokio::spawn(cancel_all(Arc::clone(handle), ids(&all), at_once))
            });
            let mut answers = Vec::new();
            for operator in operators {
                answers.push(operator.await??);
            }
            let mut held = Vec::new();
            for fetcher in fetchers {
                held.extend(fetcher.await??);
            }
            cancelled += judge(&all, &held, &answers)?;
            for batch in held {
                deliver(batch).await?;
            }
            raced += FIELD;
        }
        nothing_is_free(&*store).await?;
        ensure!(cancelled > 0 && cancelled < raced, "{cancelled} of {raced} cancelled: that was no race");
        Ok(())
    }

    async fn of_a_rescheduling_and_a_claim_exactly_one_wins(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        for round in 0..200 {
            let race = Race::prepare(&store, round).await?;
            let (operator, id) = (Arc::clone(&other), race.id.clone());
            let reschedule = async move { operator.reschedule(&id, Due::after(HOUR)).await };
            let (batch, answer) = race.run(reschedule).await?;
            let is_held = !batch.messages.is_empty();
            match answer {
                Rescheduling::Rescheduled(due) if !is_held => {
                    let seen = store.get(&race.id).await?.map(|seen| seen.message.due);
                    ensure!(seen == Some(due), "round {round}: rescheduled to {due}, but due at {seen:?}");
                    drop(batch);
                    ensure_eq!(store.cancel(&[race.id]).await?, [Cancellation::Cancelled]);
                }
                Rescheduling::InFlight if is_held => drop(deliver(batch).await?),
                answer => {
                    anyhow::bail!("round {round}: answered {answer:?}, and the claim held it: {is_held}")
                }
            }
        }
        nothing_is_free(&*store).await
    }
}

/// Who holds and who ever delivered what, by the fetchers' own books.
#[derive(Default)]
struct Holders {
    held: Mutex<BTreeSet<MessageId>>,
    delivered: Mutex<BTreeSet<MessageId>>,
}

impl Holders {
    fn take(&self, ids: &[MessageId]) -> Result<()> {
        let delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            ensure!(!delivered.contains(id), "{id} was fetched after it was removed");
            ensure!(held.insert(id.clone()), "{id} is held twice");
        }
        Ok(())
    }

    fn give_back(&self, ids: &[MessageId]) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|id| !ids.contains(id));
    }

    fn deliver(&self, ids: Vec<MessageId>) {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    fn is_done(&self) -> bool {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner).len() == ROWS
    }
}

/// Fetches until everything is delivered; every fifth batch is given back.
async fn take_part(store: Arc<dyn DelayedMessageStore>, holders: Arc<Holders>, first: usize) -> Result<()> {
    let patience = Patience::with("every message to be delivered").longer_by(Some(HOUR));
    for turn in first.. {
        if holders.is_done() {
            break;
        }
        let batch = store.fetch(limit(7)).await?;
        let ids: Vec<_> = batch.messages.iter().map(|due| due.message.id.clone()).collect();
        holders.take(&ids)?;
        if ids.is_empty() {
            patience.a_moment().await?;
        } else if turn % 5 == 0 {
            holders.give_back(&ids);
            drop(batch);
        } else {
            deliver(batch).await?;
            holders.deliver(ids);
        }
    }
    Ok(())
}

/// Fetches and holds until nothing is free.
async fn fetch_all(store: Arc<dyn DelayedMessageStore>, most: NonZeroUsize) -> Result<Vec<DueBatch>> {
    let mut batches = Vec::new();
    loop {
        let batch = store.fetch(most).await?;
        if batch.messages.is_empty() {
            return Ok(batches);
        }
        batches.push(batch);
    }
}

/// Cancels messages, so many with one call, in the order in which they are fetched.
async fn cancel_all(
    store: Arc<dyn DelayedMessageStore>,
    ids: Vec<MessageId>,
    at_once: usize,
) -> Result<Vec<Cancellation>> {
    let mut answers = Vec::with_capacity(ids.len());
    for ids in ids.chunks(at_once) {
        answers.extend(store.cancel(ids).await?);
    }
    Ok(answers)
}

/// Every message was cancelled by one operator or is held by one claim, and both operators know which. Answers
/// with the number of those that were cancelled.
fn judge(all: &[DelayedMessage], held: &[DueBatch], answers: &[Vec<Cancellation>]) -> Result<usize> {
    let held: Vec<_> = held.iter().flat_map(|batch| &batch.messages).map(|due| &due.message.id).collect();
    let mut cancelled = 0;
    for (i, delayed) in all.iter().enumerate() {
        let id = &delayed.message.id;
        let holders = held.iter().filter(|held| **held == id).count();
        let told = [answers[0][i], answers[1][i]];
        let is_true = match holders {
            0 => {
                cancelled += 1;
                told == [Cancellation::Cancelled, Cancellation::NotFound]
                    || told == [Cancellation::NotFound, Cancellation::Cancelled]
            }
            1 => told == [Cancellation::InFlight; 2],
            _ => false,
        };
        ensure!(is_true, "{id} is held by {holders} claims, and its cancellations were answered {told:?}");
    }
    Ok(cancelled)
}

/// A message that is due, and two who want it.
struct Race {
    store: Arc<dyn DelayedMessageStore>,
    id: MessageId,
    round: usize,
}

impl Race {
    async fn prepare(store: &Arc<dyn DelayedMessageStore>, round: usize) -> Result<Self> {
        let message = message(format!("m{round}"), long_ago(round));
        let id = message.message.id.clone();
        store.store_one(message).await?;
        if round == 0 {
            // The first fetch may have to win the right to dispatch; the later ones race.
            drop(hold_one(&**store).await?);
        }
        Ok(Self { store: Arc::clone(store), id, round })
    }

    /// Fetches while the other one does its part, and answers with what both got.
    async fn run<T, E>(
        &self,
        other: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<(DueBatch, T)>
    where
        T: Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let store = Arc::clone(&self.store);
        let fetch = async move { store.fetch(limit(1)).await };
        let (fetch, other) = if self.round.is_multiple_of(2) {
            let fetch = tokio::spawn(fetch);
            (fetch, tokio::spawn(other))
        } else {
            let other = tokio::spawn(other);
            (tokio::spawn(fetch), other)
        };
        Ok((fetch.await??, other.await??))
    }
}
