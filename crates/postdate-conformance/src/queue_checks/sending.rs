//! Sending to queues.

use anyhow::{Result, ensure};
use postdate_core::DispatchErrorKind;
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{
        complete, depth, drain_queue, empty, move_all, names as names_of, nothing_to_receive, receive, send,
    },
    harness::{checks, ensure_eq},
    make::{address, billing, id, limit, long_ago, many, message_for, sends},
    patience::Patience,
};

checks! {
    async fn messages_arrive_in_the_order_of_sending(bench: &Bench) -> Result<()> {
        let all = sends(90);
        let (queues, receiver) = bench.filled(&all[..30]).await?;
        for (i, message) in all[30..60].iter().enumerate() {
            // By turns through one handle and another.
            let queues = if i % 2 == 0 { queues.clone() } else { bench.queues().await? };
            send(&*queues, std::slice::from_ref(message)).await?;
        }
        send(&*queues, &all[60..]).await?;
        let came = empty(&*receiver, all.len(), Patience::with("what was sent")).await?;
        ensure!(came.iter().map(|queued| &queued.message).eq(&all));
        ensure!(came.is_sorted_by_key(|queued| queued.position));
        Ok(())
    }

    async fn a_missing_destination_does_not_keep_others_from_being_sent(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with_billing().await?;
        queues.create(&address("audit")).await?;
        let batch: Vec<_> = ["billing", "nowhere", "audit", "Billing", "billing"]
            .into_iter()
            .enumerate()
            .map(|(i, name)| message_for(format!("m{i}"), &address(name), long_ago(0)).message)
            .collect();
        let outcomes = queues.dispatcher().dispatch(&batch, None).await;
        let failed: Vec<_> =
            outcomes.iter().map(|outcome| outcome.as_ref().err().map(|error| error.kind())).collect();
        let missing = Some(DispatchErrorKind::NoDestination);
        ensure_eq!(failed, [None, missing, None, missing, None]);
        let came = empty(&*queues.receiver(&billing()).await?, 2, Patience::with("what was sent")).await?;
        ensure_eq!(names_of(&came), ["m0", "m4"]);
        empty(&*queues.receiver(&address("audit")).await?, 1, Patience::with("what was sent")).await?;
        Ok(())
    }

    async fn positions_grow_and_are_never_used_twice(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(3)).await?;
        let mut last = 0;
        for round in 0..4 {
            let there = queues.browse(&billing(), 0, limit(100)).await?;
            for position in there.iter().map(|queued| queued.position) {
                ensure!(position > last, "position {position} comes after {last}");
                last = position;
            }
            if round % 2 == 0 {
                empty(&*receiver, 3, Patience::with("what was sent")).await?;
            } else {
                queues.purge(&billing()).await?;
            }
            send(&*queues, &sends(3)).await?;
        }
        Ok(())
    }

    async fn the_same_message_sent_twice_arrives_twice(bench: &Bench) -> Result<()> {
        let one = many(1).remove(0).message;
        let (_queues, receiver) = bench.filled(&[one.clone(), one]).await?;
        let came = empty(&*receiver, 2, Patience::with("what was sent")).await?;
        ensure!(came.iter().all(|queued| queued.message.id == id("m00000")));
        Ok(())
    }

    async fn an_empty_batch_is_sent_without_an_outcome(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let outcomes = queues.dispatcher().dispatch(&[], None).await;
        ensure!(outcomes.is_empty(), "{} outcomes for no message", outcomes.len());
        nothing_to_receive(&*receiver).await
    }

    async fn a_batch_for_several_queues_keeps_its_order_in_each(bench: &Bench) -> Result<()> {
        let queues = bench.queues().await?;
        let names = ["billing", "audit", "warehouse"].map(address);
        for name in &names {
            queues.create(name).await?;
        }
        let batch: Vec<_> =
            (0..60).map(|i| message_for(format!("m{i:02}"), &names[(i + i / 2) % 3], long_ago(0)).message).collect();
        send(&*queues, &batch).await?;
        for name in &names {
            let expected: Vec<_> = batch.iter().filter(|sent| sent.destination == *name).collect();
            let came = drain_queue(&*queues, name, Patience::with("what was sent")).await?;
            ensure!(came.iter().map(|queued| &queued.message).eq(expected), "{name:?}: {:?}", names_of(&came));
        }
        Ok(())
    }

    async fn what_each_of_several_senders_sends_keeps_its_order(bench: &Bench) -> Result<()> {
        const EACH: usize = 30;
        let (_queues, receiver) = bench.filled(&[]).await?;
        let mut senders = JoinSet::new();
        for sender in 0..4 {
            let queues = bench.queues().await?;
            senders.spawn(async move {
                for i in 0..EACH {
                    let one = message_for(format!("{sender} {i:02}"), &billing(), long_ago(0)).message;
                    send(&*queues, &[one]).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = senders.join_next().await {
            done??;
        }
        let came = empty(&*receiver, 4 * EACH, Patience::with("what was sent")).await?;
        for sender in 0..4 {
            let mine: Vec<_> =
                names_of(&came).into_iter().filter(|name| name.starts_with(&format!("{sender} "))).collect();
            ensure!(mine.len() == EACH && mine.is_sorted(), "sender {sender}: {mine:?}");
        }
        Ok(())
    }

    async fn very_many_messages_are_sent_moved_and_completed_by_one_call_each(bench: &Bench) -> Result<()> {
        // More than databases take as parameters of one statement.
        const MANY: usize = 2_500;
        let (queues, receiver) = bench.filled(&sends(MANY)).await?;
        let audit = address("audit");
        queues.create(&audit).await?;
        move_all(&*receiver, MANY, &audit).await?;
        let mut completed = 0;
        let receiver = queues.receiver(&audit).await?;
        while completed < MANY {
            completed += complete(receive(&*receiver, MANY).await?).await?.len();
        }
        ensure_eq!((completed, depth(&*queues, &audit).await?), (MANY, 0));
        Ok(())
    }
}
