//! Creating queues and looking into them.

use anyhow::{Result, ensure};
use postdate_core::{Address, Due, Message, Queues, StoreErrorKind};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{empty, positions, receive, refused},
    harness::{checks, ensure_eq},
    make::{HOSTILE_NAMES, address, billing, limit, sends},
    patience::Patience,
};

checks! {
    async fn creating_a_queue_again_says_so(bench: &Bench) -> Result<()> {
        let (queues, other) = (bench.queues().await?, bench.queues().await?);
        ensure!(queues.create(&billing()).await?);
        ensure!(!queues.create(&billing()).await?);
        ensure!(!other.create(&billing()).await?);
        Ok(())
    }

    async fn a_queue_created_by_eight_at_once_is_created_once(bench: &Bench) -> Result<()> {
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let queues = bench.queues().await?;
            tasks.spawn(async move { queues.create(&billing()).await });
        }
        let mut created = 0;
        while let Some(done) = tasks.join_next().await {
            created += usize::from(done??);
        }
        ensure!(created == 1, "{created} of eight say that they created the queue");
        ensure_eq!(depth(&*bench.queues().await?, &billing()).await?, 0);
        Ok(())
    }

    async fn the_list_shows_queues_by_name_with_their_depths(bench: &Bench) -> Result<()> {
        let (queues, _receiver) = bench.filled(&sends(3)).await?;
        for name in ["warehouse", "audit"] {
            queues.create(&address(name)).await?;
        }
        let listed = queues.list().await?;
        let lines: Vec<_> = listed.iter().map(|queue| (queue.name.as_str(), queue.depth)).collect();
        ensure_eq!(lines, [("audit", 0), ("billing", 3), ("warehouse", 0)]);
        let first = queues.browse(&billing(), 0, limit(1)).await?;
        let oldest: Vec<_> = listed.iter().map(|queue| queue.oldest).collect();
        ensure_eq!(oldest, [None, first.first().map(|queued| queued.enqueued), None]);
        Ok(())
    }

    async fn the_depth_counts_what_receivers_hold(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(3)).await?;
        let mut batch = receive(&*receiver, 1).await?;
        ensure_eq!(depth(&*queues, &billing()).await?, 3);
        batch.claim.complete(&positions(&batch.messages)).await?;
        ensure_eq!(depth(&*queues, &billing()).await?, 2);
        Ok(())
    }

    async fn purging_leaves_what_receivers_hold(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(5)).await?;
        let mut batch = receive(&*receiver, 1).await?;
        ensure_eq!(queues.purge(&billing()).await?, 4);
        ensure_eq!(queues.purge(&billing()).await?, 0);
        ensure_eq!(batch.claim.complete(&positions(&batch.messages)).await?, [true]);
        ensure_eq!(depth(&*queues, &billing()).await?, 0);
        Ok(())
    }

    async fn browsing_takes_nothing(bench: &Bench) -> Result<()> {
        let all = sends(7);
        let (queues, receiver) = bench.filled(&all).await?;
        let (mut seen, mut after) = (Vec::new(), 0);
        for _ in 0..all.len() {
            let page = queues.browse(&billing(), after, limit(3)).await?;
            ensure!(page.len() <= 3);
            let Some(last) = page.last() else { break };
            after = last.position;
            seen.extend(page);
        }
        ensure!(seen.iter().map(|queued| &queued.message).eq(&all), "{seen:?}");
        let received = empty(&*receiver, all.len(), Patience::with("what was browsed")).await?;
        ensure!(received == seen, "browsing showed other messages than came, or counted a delivery");
        Ok(())
    }

    async fn a_queue_that_is_not_there_is_refused(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with(&billing()).await?;
        let nowhere = address("nowhere");
        refused(queues.purge(&nowhere).await, StoreErrorKind::NoSuchQueue)?;
        refused(queues.browse(&nowhere, 0, limit(1)).await, StoreErrorKind::NoSuchQueue)?;
        refused(queues.receiver(&nowhere).await, StoreErrorKind::NoSuchQueue)?;
        ensure_eq!(queues.list().await?.len(), 1);
        Ok(())
    }

    async fn queues_of_similar_names_are_different(bench: &Bench) -> Result<()> {
        let queues = bench.queues().await?;
        let names = HOSTILE_NAMES.map(address);
        for name in &names {
            ensure!(queues.create(name).await?, "{name:?} is there already");
            let message = Message::new(name.to_string()).to(name.clone(), Due::NOW).message;
            for sent in queues.dispatcher().dispatch(&[message], None).await {
                sent?;
            }
        }
        for name in &names {
            ensure!(depth(&*queues, name).await? == 1, "{name:?}");
            let batch = receive(&*queues.receiver(name).await?, 10).await?;
            let bodies: Vec<_> = batch.messages.iter().map(|queued| &queued.message.body).collect();
            ensure!(bodies == [name.as_str()], "{name:?}: {bodies:?}");
        }
        Ok(())
    }
}

async fn depth(queues: &dyn Queues, queue: &Address) -> Result<u64> {
    let listed = queues.list().await?;
    let found = listed.into_iter().find(|status| status.name == *queue);
    found.map(|status| status.depth).ok_or_else(|| anyhow::anyhow!("{queue:?} is not listed"))
}
