//! Waiting for messages.

use anyhow::{Context as _, Result, ensure};
use futures::future::{poll_immediate, try_join_all};
use postdate_core::{Receiver, ReceiverExt as _};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    bench::Bench,
    cuts::{Cuts, SWEEPS},
    drive::{empty, names, nothing_to_receive, positions, receive, send},
    harness::{checks, ensure_eq},
    make::{address, billing, limit, sends},
    patience::{self, Patience, woken_by_queue},
};

checks! {
    #[needs(WakeUps)]
    async fn a_wait_ends_when_a_message_arrives(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&[]).await?;
        let other = bench.queues().await?;
        for message in sends(5) {
            nothing_to_receive(&*receiver).await?;
            let message = [message];
            tokio::try_join!(woken_by_queue(&*receiver), send(&*other, &message))?;
            empty(&*receiver, 1, Patience::with("what was announced")).await?;
        }
        Ok(())
    }

    #[needs(WakeUps)]
    async fn a_message_that_arrived_before_the_wait_is_not_missed(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        for message in sends(5) {
            nothing_to_receive(&*receiver).await?;
            send(&*queues, &[message]).await?;
            woken_by_queue(&*receiver).await?;
            empty(&*receiver, 1, Patience::with("what was announced")).await?;
        }
        Ok(())
    }

    #[needs(WakeUps)]
    async fn a_wait_ends_when_a_message_is_given_back(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(1)).await?;
        let waiting = queues.receiver(&billing()).await?;
        let mut batch = receive(&*receiver, 1).await?;
        nothing_to_receive(&*waiting).await?;
        let held = positions(&batch.messages);
        let abandon = async { Ok(batch.claim.abandon(&held).await?) };
        tokio::try_join!(woken_before_a_lease_ends(bench, &*waiting), abandon)?;
        let batch = receive(&*waiting, 1).await?;
        nothing_to_receive(&*receiver).await?;
        let give_back = async {
            drop(batch);
            Ok(())
        };
        tokio::try_join!(woken_before_a_lease_ends(bench, &*receiver), give_back)?;
        receive(&*receiver, 1).await?;
        Ok(())
    }

    #[needs(WakeUps)]
    async fn a_wait_ends_when_a_message_is_moved_here(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(1)).await?;
        let audit = address("audit");
        queues.create(&audit).await?;
        let waiting = queues.receiver(&audit).await?;
        nothing_to_receive(&*waiting).await?;
        let mut batch = receive(&*receiver, 1).await?;
        let held = positions(&batch.messages);
        let move_it = async { Ok(batch.claim.move_to(&held, &audit).await?) };
        tokio::try_join!(woken_by_queue(&*waiting), move_it)?;
        empty(&*waiting, 1, Patience::with("what was moved")).await?;
        Ok(())
    }

    #[needs(WakeUps)]
    #[needs(Leases)]
    async fn a_wait_ends_when_the_lease_of_another_does(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(1)).await?;
        let waiting = queues.receiver(&billing()).await?;
        let held = receive(&*receiver, 1).await?;
        nothing_to_receive(&*waiting).await?;
        let longest = patience::limit() + bench.lease_term().unwrap_or_default();
        let woken = timeout(longest, waiting.receive(limit(1))).await;
        ensure_eq!(names(&woken.context("nobody told of the end of the lease")??.messages), ["m00000"]);
        drop(held);
        Ok(())
    }

    #[needs(WakeUps)]
    async fn every_receiver_is_woken(bench: &Bench) -> Result<()> {
        let (queues, first) = bench.filled(&[]).await?;
        let second = queues.receiver(&billing()).await?;
        let third = bench.queues().await?.receiver(&billing()).await?;
        let all = [&*first, &*second, &*third];
        for receiver in all {
            nothing_to_receive(receiver).await?;
        }
        let everybody = try_join_all(all.map(woken_by_queue));
        let sent = sends(1);
        tokio::try_join!(everybody, send(&*queues, &sent))?;
        Ok(())
    }

    #[needs(WakeUps)]
    async fn of_those_who_share_a_receiver_none_sleeps_beside_a_free_message(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        nothing_to_receive(&*receiver).await?;
        send(&*queues, &sends(2)).await?;
        woken_by_queue(&*receiver).await?;
        let _first = receive(&*receiver, 1).await?;
        // Another, who looked before the two came, begins to wait now.
        woken_before_a_lease_ends(bench, &*receiver).await.context("m00001 is free")
    }

    #[needs(WakeUps)]
    async fn as_many_waiting_receivers_as_messages_get_one_each(bench: &Bench) -> Result<()> {
        const WAITING: usize = 12;
        let (queues, one) = bench.filled(&[]).await?;
        let two = queues.receiver(&billing()).await?;
        let three = bench.queues().await?.receiver(&billing()).await?;
        let mut tasks = JoinSet::new();
        for i in 0..WAITING {
            let receiver = [&one, &two, &three][i % 3].clone();
            tasks.spawn(async move { receiver.receive(limit(1)).await });
        }
        for pair in sends(WAITING).chunks(2) {
            send(&*queues, pair).await?;
        }
        let mut received = Vec::new();
        while received.len() < WAITING {
            let next = timeout(patience::limit(), tasks.join_next()).await;
            let next = next.with_context(|| format!("{} of {WAITING} still wait", WAITING - received.len()))?;
            received.push(next.context("a task is missing")???);
        }
        let mut names: Vec<_> = received.iter().flat_map(|batch| names(&batch.messages)).collect();
        names.sort_unstable();
        ensure!(names.len() == WAITING && names.is_sorted_by(|a, b| a < b), "{names:?}");
        Ok(())
    }

    #[needs(WakeUps)]
    async fn a_dropped_wait_loses_no_reason(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let mut cuts = Cuts::sweeps(SWEEPS);
        while cuts.next()?.is_some() {
            nothing_to_receive(&*receiver).await?;
            let mut waiting = Box::pin(receiver.changed());
            // Reasons from before, which may be told of late.
            while poll_immediate(waiting.as_mut()).await.is_some() {
                nothing_to_receive(&*receiver).await?;
                waiting.set(receiver.changed());
            }
            send(&*queues, &sends(1)).await?;
            if cuts.call(waiting).await.is_none() {
                woken_by_queue(&*receiver).await?;
            }
            empty(&*receiver, 1, Patience::with("what was announced")).await?;
        }
        Ok(())
    }
}

/// The end of a lease wakes, too, and would hide that nothing else did.
async fn woken_before_a_lease_ends(bench: &Bench, receiver: &dyn Receiver) -> Result<()> {
    let limit = bench.lease_term().map_or_else(patience::limit, |term| term / 2);
    timeout(limit, receiver.changed()).await.context("changed() of the receiver did not complete")
}
