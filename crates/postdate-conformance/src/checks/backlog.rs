//! Much that is due at once, and much that stands in the way (L7, L5).

use std::{collections::BTreeSet, num::NonZeroUsize, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use postdate_core::{
    DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _, FetchDue, Filter, ListQuery, MessageId,
};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{deliver, failure, nothing_is_free, take_now},
    environment,
    harness::{checks, ensure_eq},
    make::{HOUR, address, id, limit, long_ago, many, message, message_for},
    patience::Patience,
};

const LARGE: usize = 20_000;
const BATCH: usize = 500;

/// So many messages stand in the way of one: more than stores read at once.
const CROWD: usize = 1_200;

checks! {
    async fn a_large_backlog_comes_oldest_first_in_full_batches_and_each_message_once(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let count = store_backlog(&*store).await?;
        let (mut came, mut fetches) = (BTreeSet::new(), 0);
        let mut latest = Timestamp::MIN;
        while came.len() < count {
            let batch = store.fetch(limit(BATCH)).await?;
            fetches += 1;
            ensure!(!batch.messages.is_empty(), "{} of {count} messages came, then none", came.len());
            ensure!(batch.messages.len() <= BATCH, "{} messages where {BATCH} were asked for", batch.messages.len());
            for due in deliver(batch).await? {
                ensure!(due.due >= latest, "due at {} and came after what was due at {latest}", due.due);
                latest = due.due;
                ensure!(came.insert(due.message.id.clone()), "{} came twice", due.message.id);
            }
        }
        let fewest = count.div_ceil(BATCH);
        ensure!(fetches <= 2 * fewest, "{fetches} fetches of at most {BATCH} for {count} small messages");
        nothing_is_free(&*store).await
    }

    async fn two_handles_share_a_large_backlog(bench: &Bench) -> Result<()> {
        let handles = [bench.store().await?, bench.store().await?];
        let count = store_backlog(&*handles[0]).await?;
        let mut tasks = JoinSet::new();
        for handle in [&handles[0], &handles[1], &handles[0], &handles[1]] {
            tasks.spawn(share(Arc::clone(handle)));
        }
        let mut came = BTreeSet::new();
        while let Some(share) = tasks.join_next().await {
            for id in share?? {
                ensure!(came.insert(id.clone()), "{id} was delivered twice");
            }
        }
        ensure_eq!(came.len(), count);
        Ok(())
    }

    async fn a_message_behind_many_that_are_held_is_found(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all = many(CROWD);
        store.store(&all).await?;
        let mut claims = Vec::new();
        let mut held = 0;
        while held < CROWD {
            let batch = store.fetch(limit(CROWD - held)).await?;
            ensure!(!batch.messages.is_empty(), "{held} of {CROWD} messages are held, then none came");
            held += batch.messages.len();
            claims.push(batch.claim);
        }
        store.store_one(message("behind", long_ago(CROWD))).await?;
        ensure_eq!(store.next_due(&[]).await?.wait(), Some(Duration::ZERO));
        ensure_eq!(take_now(&*store).await?.message.id, id("behind"));
        Ok(())
    }

    async fn a_message_behind_many_for_excepted_destinations_is_found(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let down = address("down");
        let crowd: Vec<_> =
            (0..CROWD).map(|i| message_for(format!("m{i}"), &down, long_ago(i))).collect();
        store.store(&crowd).await?;
        store.store_one(message("behind", long_ago(CROWD))).await?;
        let except = [down];
        let batch = store.fetch_due(FetchDue { limit: limit(10), except: &except }).await?;
        let came: Vec<_> = deliver(batch).await?.into_iter().map(|due| due.message.id).collect();
        ensure_eq!(came, [id("behind")]);
        ensure!(store.next_due(&except).await?.due.is_none());
        Ok(())
    }

    async fn a_message_behind_many_that_failed_is_found(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(CROWD)).await?;
        let mut failed = 0;
        while failed < CROWD {
            let mut batch = store.fetch(limit(CROWD)).await?;
            ensure!(!batch.messages.is_empty(), "{failed} of {CROWD} messages failed, then none came");
            let failures: Vec<_> = batch
                .messages
                .iter()
                .map(|due| failure(due.message.id.clone(), HOUR, "no answer"))
                .collect();
            ensure!(batch.claim.increment_failure_count(&failures).await?.iter().all(|counted| *counted));
            batch.claim.commit().await?;
            failed += failures.len();
        }
        store.store_one(message("behind", long_ago(CROWD))).await?;
        ensure_eq!(take_now(&*store).await?.message.id, id("behind"));
        nothing_is_free(&*store).await
    }

    async fn the_greatest_limit_is_no_limit(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all = many(20);
        store.store(&all).await?;
        let query = ListQuery::new(Filter::default(), NonZeroUsize::MAX);
        let page = store.list(&query).await?;
        ensure!(page.messages.len() == all.len() && page.next.is_none(), "{} messages", page.messages.len());
        ensure_eq!(deliver(store.fetch(NonZeroUsize::MAX).await?).await?.len(), all.len());
        Ok(())
    }
}

/// Stores the backlog, not in its order; answers with its size.
async fn store_backlog(store: &dyn DelayedMessageStore) -> Result<usize> {
    let count = environment::LARGE.get()?.map_or(LARGE, NonZeroUsize::get);
    // A step that has no divisor in common with the count meets every message once, in quite another order.
    let step = (count / 3..).find(|step| is_coprime(*step, count)).unwrap_or(1);
    let shuffled: Vec<DelayedMessage> =
        (0..count).map(|i| i * step % count).map(|i| message(format!("m{i}"), long_ago(i))).collect();
    for batch in shuffled.chunks(1_000) {
        store.store(batch).await?;
    }
    Ok(count)
}

fn is_coprime(one: usize, other: usize) -> bool {
    if other == 0 { one == 1 } else { is_coprime(other, one % other) }
}

/// Delivers until nothing is there any more; answers with what it delivered.
async fn share(store: Arc<dyn DelayedMessageStore>) -> Result<Vec<MessageId>> {
    let patience = Patience::with("the others to deliver their share").longer_by(Some(HOUR));
    let mut delivered = Vec::new();
    loop {
        let batch = store.fetch(limit(BATCH)).await?;
        if batch.messages.is_empty() {
            if store.stats().await?.pending == 0 {
                return Ok(delivered);
            }
            patience.a_moment().await?;
        }
        ensure!(batch.messages.is_sorted_by_key(|due| due.due), "a batch is not in order");
        delivered.extend(deliver(batch).await?.into_iter().map(|due| due.message.id));
    }
}
