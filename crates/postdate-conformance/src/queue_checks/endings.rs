//! Handles that are dropped, receives that are stopped, and what a crash leaves (S1, L12).

use std::{mem, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use postdate_core::{ReceivedBatch, ReceiverExt as _};
use tokio::{task::yield_now, time::timeout};

use crate::{
    bench::Bench,
    drive::{drain_queue, empty, hold_all, names, nothing_to_receive, positions, receive, send},
    harness::{checks, ensure_eq},
    make::{billing, limit, sends},
    patience::{self, Patience},
};

checks! {
    #[needs(Durability)]
    async fn sent_messages_survive_reopening(bench: &Bench) -> Result<()> {
        let all = sends(10);
        drop(bench.filled(&all).await?);
        let receiver = bench.queues().await?.receiver(&billing()).await?;
        let came = empty(&*receiver, all.len(), Patience::with("what was sent")).await?;
        ensure!(came.iter().map(|queued| &queued.message).eq(&all));
        Ok(())
    }

    #[needs(Durability)]
    async fn settled_messages_stay_settled_after_reopening(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(4)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 3).await?;
        let held = positions(&messages);
        ensure_eq!(claim.complete(&held[..1]).await?, [true]);
        ensure_eq!(claim.move_to(&held[1..2], &billing()).await?, [true]);
        ensure_eq!(claim.abandon(&held[2..]).await?, [true]);
        drop((claim, receiver, queues));
        let receiver = bench.queues().await?.receiver(&billing()).await?;
        let came = empty(&*receiver, 3, Patience::with("what was not completed")).await?;
        ensure_eq!(names(&came), ["m00002", "m00003", "m00001"]);
        Ok(())
    }

    async fn a_claim_dropped_with_all_its_handles_is_free_again(bench: &Bench) -> Result<()> {
        let survivor = bench.queues_with_billing().await?;
        send(&*survivor, &sends(3)).await?;
        let queues = bench.queues().await?;
        let receiver = queues.receiver(&billing()).await?;
        let batch = receive(&*receiver, 3).await?;
        drop((receiver, queues, batch));
        let receiver = survivor.receiver(&billing()).await?;
        let patience = Patience::with("what the dropped handle held").longer_by(bench.lease_term());
        let came = hold_all(&*receiver, 3, patience).await?;
        ensure_eq!(names(&came.messages), ["m00000", "m00001", "m00002"]);
        Ok(())
    }

    #[needs(Leases)]
    async fn a_claim_that_nobody_drops_ends_with_its_lease(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(2)).await?;
        // As if the process were gone: nobody gives anything back.
        mem::forget(receive(&*receiver, 1).await?.claim);
        let patience = Patience::with("the lease to end").longer_by(bench.lease_term());
        let came = hold_all(&*receiver, 2, patience).await?;
        ensure_eq!(names(&came.messages), ["m00000", "m00001"]);
        ensure_eq!(came.messages[0].deliveries, 1);
        Ok(())
    }

    async fn a_receiver_and_its_claims_outlive_the_handle_they_came_from(bench: &Bench) -> Result<()> {
        let other = bench.queues_with_billing().await?;
        let receiver = bench.queues().await?.receiver(&billing()).await?;
        send(&*other, &sends(2)).await?;
        let mut batch = receive(&*receiver, 1).await?;
        drop(receiver);
        batch.claim.renew().await?;
        ensure_eq!(batch.claim.complete(&positions(&batch.messages)).await?, [true]);
        let rest = drain_queue(&*other, &billing(), Patience::with("the rest")).await?;
        ensure_eq!(names(&rest), ["m00001"]);
        Ok(())
    }

    #[needs(WakeUps)]
    async fn closing_a_handle_does_not_end_a_receive_that_waits(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let waiting = {
            let receiver = Arc::clone(&receiver);
            tokio::spawn(async move { receiver.receive(limit(1)).await })
        };
        yield_now().await;
        drop((queues, receiver));
        send(&*bench.queues().await?, &sends(1)).await?;
        let came = timeout(patience::limit(), waiting).await.context("the receive waits for ever")???;
        ensure_eq!(names(&came.messages), ["m00000"]);
        Ok(())
    }

    async fn a_receive_that_is_stopped_while_it_waits_takes_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        for round in 0..5 {
            let stopped = {
                let receiver = Arc::clone(&receiver);
                tokio::spawn(async move { receiver.receive(limit(1)).await })
            };
            for _ in 0..round {
                yield_now().await;
            }
            stopped.abort();
            ensure!(stopped.await.is_err_and(|error| error.is_cancelled()), "there was nothing to receive");
            send(&*queues, &sends(1)).await?;
            let other = bench.queues().await?.receiver(&billing()).await?;
            empty(&*other, 1, Patience::with("what nobody waits for any more")).await?;
        }
        nothing_to_receive(&*receiver).await
    }
}
