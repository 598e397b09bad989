//! Looking into queues.

use std::num::NonZeroUsize;

use anyhow::{Result, ensure};

use crate::{
    bench::Bench,
    drive::{complete, empty, names, positions, receive},
    harness::{checks, ensure_eq},
    make::{billing, limit, sends},
    patience::Patience,
};

checks! {
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

    async fn browsing_begins_after_any_position_and_ends_with_the_queue(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(6)).await?;
        let all = positions(&queues.browse(&billing(), 0, NonZeroUsize::MAX).await?);
        ensure_eq!(all.len(), 6);
        for (i, after) in all.iter().enumerate() {
            let rest = queues.browse(&billing(), *after, limit(100)).await?;
            ensure_eq!(&positions(&rest)[..], &all[i + 1..]);
        }
        ensure_eq!(&positions(&queues.browse(&billing(), all[1], limit(2)).await?)[..], &all[2..4]);
        for beyond in [all[5] + 1, all[5] + 1_000_000, u64::MAX - 1, u64::MAX] {
            ensure_eq!(queues.browse(&billing(), beyond, limit(100)).await?, []);
        }
        // Also after a position whose message is gone.
        complete(receive(&*receiver, 3).await?).await?;
        ensure_eq!(&positions(&queues.browse(&billing(), all[1], limit(2)).await?)[..], &all[3..5]);
        Ok(())
    }

    async fn browsing_shows_what_receivers_hold(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(3)).await?;
        let batch = receive(&*receiver, 2).await?;
        let seen = queues.browse(&billing(), 0, limit(100)).await?;
        ensure_eq!(names(&seen), ["m00000", "m00001", "m00002"]);
        ensure!(seen[..2].iter().zip(&batch.messages).all(|(seen, held)| seen.message == held.message));
        Ok(())
    }
}
