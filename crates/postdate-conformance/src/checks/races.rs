//! Of several who want the same message exactly one gets it (S4, S13).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, ensure};
use postdate_core::{
    Cancellation, DelayedMessageStore, DelayedMessageStoreExt as _, Due, DueBatch, MessageId, Rescheduling,
};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{deliver, hold_one, nothing_is_free},
    harness::{checks, ensure_eq},
    make::{HOUR, limit, long_ago, many, message},
    patience::Patience,
};

const ROWS: usize = 1_000;

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

    async fn of_a_cancellation_and_a_claim_exactly_one_wins(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let (mut cancelled, mut claimed) = (0, 0);
        for round in 0..300 {
            let race = Race::prepare(&store, round).await?;
            let (operator, id) = (Arc::clone(&other), race.id.clone());
            let cancel = async move { operator.cancel(&[id]).await };
            let (batch, answers) = race.run(cancel).await?;
            let is_held = !batch.messages.is_empty();
            match answers.as_slice() {
                [Cancellation::Cancelled] if !is_held => cancelled += 1,
                [Cancellation::InFlight] if is_held => claimed += 1,
                answers => {
                    anyhow::bail!("round {round}: answered {answers:?}, and the claim held it: {is_held}")
                }
            }
            deliver(batch).await?;
            ensure!(store.get(&race.id).await?.is_none(), "round {round}: the message is still there");
        }
        ensure_eq!(cancelled + claimed, 300);
        nothing_is_free(&*store).await
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
