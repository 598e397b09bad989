//! Creating, listing and purging queues.

use anyhow::{Result, ensure};
use postdate_core::StoreErrorKind;
use tokio::task::{JoinSet, yield_now};

use crate::{
    bench::Bench,
    drive::{complete, depth, drain_queue, receive, refused, send},
    harness::{checks, ensure_eq},
    make::{address, billing, limit, sends},
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
        let batch = receive(&*receiver, 1).await?;
        ensure_eq!(depth(&*queues, &billing()).await?, 3);
        complete(batch).await?;
        ensure_eq!(depth(&*queues, &billing()).await?, 2);
        Ok(())
    }

    async fn purging_leaves_what_receivers_hold(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(5)).await?;
        let batch = receive(&*receiver, 1).await?;
        ensure_eq!(queues.purge(&billing()).await?, 4);
        ensure_eq!(queues.purge(&billing()).await?, 0);
        complete(batch).await?;
        ensure_eq!(depth(&*queues, &billing()).await?, 0);
        Ok(())
    }

    async fn a_purge_while_others_send_counts_exactly_what_it_removed(bench: &Bench) -> Result<()> {
        const SENDERS: usize = 4;
        const BATCHES: usize = 25;
        let (queues, _receiver) = bench.filled(&[]).await?;
        let mut senders = JoinSet::new();
        for _ in 0..SENDERS {
            let queues = bench.queues().await?;
            senders.spawn(async move {
                for _ in 0..BATCHES {
                    send(&*queues, &sends(2)).await?;
                }
                anyhow::Ok(())
            });
        }
        let mut purged = 0;
        while !senders.is_empty() {
            purged += queues.purge(&billing()).await?;
            while let Some(done) = senders.try_join_next() {
                done??;
            }
            // Queues in memory await nothing, and the senders want their turn.
            yield_now().await;
        }
        let left = drain_queue(&*queues, &billing(), Patience::with("what was not purged")).await?.len();
        ensure_eq!(purged + left as u64, (SENDERS * BATCHES * 2) as u64);
        Ok(())
    }

    async fn a_queue_that_is_not_there_is_refused(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with_billing().await?;
        let nowhere = address("nowhere");
        refused(queues.purge(&nowhere).await, StoreErrorKind::NoSuchQueue)?;
        refused(queues.browse(&nowhere, 0, limit(1)).await, StoreErrorKind::NoSuchQueue)?;
        refused(queues.receiver(&nowhere).await, StoreErrorKind::NoSuchQueue)?;
        ensure_eq!(queues.list().await?.len(), 1);
        Ok(())
    }
}
