//! Calls that are dropped at any of their awaits: what they do happens whole or not at all, and nothing is held
//! for good (rule 11).

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use postdate_core::{Queues, ReceiveClaim, ReceivedBatch, Receiver, Selection};

use crate::{
    bench::Bench,
    cuts::{Cuts, SWEEPS},
    drive::{depth, drain_queue, hold_all, names, positions, receive, send},
    harness::{checks, ensure_eq},
    make::{address, billing, limit, long_ago, message, sends},
    patience::Patience,
};

checks! {
    async fn of_a_dropped_call_of_dispatch_nothing_arrives_twice(bench: &Bench) -> Result<()> {
        let (queues, _receiver) = bench.filled(&[]).await?;
        let dispatcher = queues.dispatcher();
        let mut came = Vec::new();
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let batch: Vec<_> =
                (0..3).map(|i| message(format!("{number:05} {i}"), long_ago(0)).message).collect();
            let done = cuts.call(dispatcher.dispatch(&batch, None)).await.is_some();
            send(&*queues, &[message(format!("{number:05} end"), long_ago(0)).message]).await?;
            if done {
                let all = drain_queue(&*queues, &billing(), Patience::with("what was sent")).await?;
                let all = names(&all).into_iter().filter(|name| !name.ends_with("end"));
                came.extend(all.map(str::to_owned));
                let own = format!("{number:05}");
                ensure!(came.iter().filter(|name| name.starts_with(&own)).count() == 3, "{own}: {came:?}");
            }
        }
        came.sort_by(|a, b| a[..5].cmp(&b[..5]));
        ensure!(came.is_sorted_by(|a, b| a < b), "twice, or not in order: {came:?}");
        Ok(())
    }

    async fn a_dropped_call_of_receive_takes_nothing(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(6)).await?;
        let ids = sends(6).into_iter().map(|sent| sent.id).collect();
        for selection in [Selection::Next(limit(6)), Selection::Ids(ids)] {
            let mut cuts = Cuts::sweeps(SWEEPS);
            while cuts.next()?.is_some() {
                cuts.call(receiver.try_receive(&selection)).await.transpose()?;
                // A claim whose answer nobody took may last as long as its lease.
                let patience = Patience::with("what a dropped call had received").longer_by(bench.lease_term());
                let batch = hold_all(&*receiver, 6, patience).await?;
                ensure!(batch.messages.is_sorted_by_key(|queued| queued.position));
                drop(batch);
                hold_all(&*receiver, 6, Patience::with("what was given back")).await?;
            }
        }
        Ok(())
    }

    async fn a_dropped_call_of_complete_completes_all_or_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while cuts.next()?.is_some() {
            let (mut claim, held) = hold_four(&*queues, &*receiver).await?;
            let done = cuts.call(claim.complete(&held[..3])).await.transpose()?;
            claim.renew().await?;
            ensure_eq!(claim.complete(&held[3..]).await?, [true]);
            drop(claim);
            let left = drain_queue(&*queues, &billing(), Patience::with("what was not completed")).await?.len();
            ensure!(left == 0 || (left == 3 && done.is_none()), "{left} of 3 are left, the answer was {done:?}");
        }
        Ok(())
    }

    async fn a_dropped_call_of_abandon_loses_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while cuts.next()?.is_some() {
            let (mut claim, held) = hold_four(&*queues, &*receiver).await?;
            let done = cuts.call(claim.abandon(&held[..3])).await.transpose()?;
            claim.renew().await?;
            ensure_eq!(claim.complete(&held[3..]).await?, [true]);
            if done.is_some() {
                // At once, while the claim lives on.
                ensure_eq!(receive(&*receiver, 4).await?.messages.len(), 3);
            }
            drop(claim);
            let left = drain_queue(&*queues, &billing(), Patience::with("what was given back")).await?;
            ensure_eq!(names(&left), ["m00000", "m00001", "m00002"]);
        }
        Ok(())
    }

    async fn a_dropped_call_of_move_moves_all_or_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let audit = address("audit");
        queues.create(&audit).await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while cuts.next()?.is_some() {
            let (mut claim, held) = hold_four(&*queues, &*receiver).await?;
            let done = cuts.call(claim.move_to(&held[..3], &audit)).await.transpose()?;
            claim.renew().await?;
            ensure_eq!(claim.complete(&held[3..]).await?, [true]);
            drop(claim);
            let left = drain_queue(&*queues, &billing(), Patience::with("what was not moved")).await?;
            let moved = drain_queue(&*queues, &audit, Patience::with("what was moved")).await?;
            let both = (left.len(), moved.len());
            ensure!(both == (0, 3) || (both == (3, 0) && done.is_none()), "left and moved are {both:?}, the answer was {done:?}");
            let came = if left.is_empty() { moved } else { left };
            ensure_eq!(names(&came), ["m00000", "m00001", "m00002"]);
        }
        Ok(())
    }

    async fn a_dropped_call_of_renew_loses_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while cuts.next()?.is_some() {
            let (mut claim, held) = hold_four(&*queues, &*receiver).await?;
            cuts.call(claim.renew()).await.transpose()?;
            ensure_eq!(claim.complete(&held).await?, [true; 4]);
        }
        Ok(())
    }

    async fn a_dropped_call_of_purge_takes_nothing_that_is_held(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while cuts.next()?.is_some() {
            send(&*queues, &sends(5)).await?;
            let ReceivedBatch { messages, mut claim } = receive(&*receiver, 2).await?;
            let done = cuts.call(queues.purge(&billing())).await.transpose()?;
            ensure_eq!(claim.complete(&positions(&messages)).await?, [true; 2]);
            let left = drain_queue(&*queues, &billing(), Patience::with("what was not purged")).await?;
            let known: BTreeSet<_> = ["m00002", "m00003", "m00004"].into();
            ensure!(names(&left).iter().all(|name| known.contains(name)), "{:?}", names(&left));
            if let Some(purged) = done {
                ensure_eq!((purged, left.len()), (3, 0));
            }
        }
        Ok(())
    }

    async fn a_dropped_call_of_browse_takes_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(3)).await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while cuts.next()?.is_some() {
            cuts.call(queues.browse(&billing(), 0, limit(100))).await.transpose()?;
            ensure_eq!(depth(&*queues, &billing()).await?, 3);
        }
        let all = receive(&*receiver, 3).await?.messages;
        ensure!(all.len() == 3 && all.iter().all(|queued| queued.deliveries == 0), "{all:?}");
        Ok(())
    }

    async fn a_queue_can_be_created_after_a_dropped_call_of_create(bench: &Bench) -> Result<()> {
        let queues = bench.queues().await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while let Some(number) = cuts.next()? {
            let queue = address(format!("queue {number}"));
            let done = cuts.call(queues.create(&queue)).await.transpose()?;
            let again = queues.create(&queue).await?;
            ensure!(done.is_none() || (done, again) == (Some(true), false), "{done:?}, then {again}");
            ensure_eq!(depth(&*queues, &queue).await?, 0);
        }
        Ok(())
    }
}

/// A claim on four new messages of the usual queue, and their positions.
async fn hold_four(
    queues: &dyn Queues,
    receiver: &dyn Receiver,
) -> Result<(Box<dyn ReceiveClaim>, Vec<u64>)> {
    send(queues, &sends(4)).await?;
    let batch = hold_all(receiver, 4, Patience::with("what was sent")).await?;
    Ok((batch.claim, positions(&batch.messages)))
}
