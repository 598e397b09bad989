//! Sending to queues.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use futures::FutureExt as _;
use postdate_core::{DispatchErrorKind, EncodedHeaders};

use crate::{
    bench::Bench,
    drive::{empty, receive},
    harness::{checks, ensure_eq},
    make::{address, billing, id, limit, long_ago, many, message_for, sends, with_body},
    patience::Patience,
};

checks! {
    async fn a_sent_message_arrives_byte_for_byte(bench: &Bench) -> Result<()> {
        let every_byte: Vec<u8> = (0..=u8::MAX).collect();
        let headers: [&[u8]; 5] =
            [b"", br#"{ "a" : "2" }"#, b"<headers/>", b"\0\xff\xfe", "{\"ä\":\"'\"}".as_bytes()];
        let bodies = [vec![], vec![0], every_byte, "ä€\u{1f4e6}\r\n'".into(), vec![7; 1 << 20]];
        let mut all = Vec::new();
        for (i, (headers, body)) in headers.into_iter().zip(bodies).enumerate() {
            let mut message = with_body(format!("'m%{i}_ ä"), body).message;
            message.headers = EncodedHeaders::from_bytes(headers);
            all.push(message);
        }
        let (_queues, receiver) = bench.filled(&all).await?;
        let came = empty(&*receiver, all.len(), Patience::with("what was sent")).await?;
        for (sent, came) in all.iter().zip(&came) {
            ensure!(came.message == *sent, "{:?} came as {:?}", sent, came.message);
            ensure_eq!(came.deliveries, 0);
        }
        Ok(())
    }

    async fn messages_arrive_in_the_order_of_sending(bench: &Bench) -> Result<()> {
        let all = sends(90);
        let (queues, receiver) = bench.filled(&all[..30]).await?;
        for (i, message) in all[30..60].iter().enumerate() {
            // By turns through one handle and another.
            let queues = if i % 2 == 0 { queues.clone() } else { bench.queues().await? };
            for sent in queues.dispatcher().dispatch(std::slice::from_ref(message), None).await {
                sent?;
            }
        }
        for sent in queues.dispatcher().dispatch(&all[60..], None).await {
            sent?;
        }
        let came = empty(&*receiver, all.len(), Patience::with("what was sent")).await?;
        ensure!(came.iter().map(|queued| &queued.message).eq(&all));
        ensure!(came.is_sorted_by_key(|queued| queued.position));
        Ok(())
    }

    async fn a_missing_destination_does_not_keep_others_from_being_sent(bench: &Bench) -> Result<()> {
        let queues = bench.queues_with(&billing()).await?;
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
        ensure!(came.iter().map(|queued| queued.message.id.as_str()).eq(["m0", "m4"]));
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
            for sent in queues.dispatcher().dispatch(&sends(3), None).await {
                sent?;
            }
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

    #[needs(Durability)]
    async fn sent_messages_survive_reopening(bench: &Bench) -> Result<()> {
        let all = sends(10);
        drop(bench.filled(&all).await?);
        let receiver = bench.queues().await?.receiver(&billing()).await?;
        let came = empty(&*receiver, all.len(), Patience::with("what was sent")).await?;
        ensure!(came.iter().map(|queued| &queued.message).eq(&all));
        Ok(())
    }

    async fn of_a_dropped_call_of_dispatch_nothing_arrives_twice(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let all = sends(50);
        for message in &all {
            drop(queues.dispatcher().dispatch(std::slice::from_ref(message), None).now_or_never());
        }
        let end = many(51).remove(50).message;
        for sent in queues.dispatcher().dispatch(std::slice::from_ref(&end), None).await {
            sent?;
        }
        let mut came = BTreeSet::new();
        while !came.contains(&end.id) {
            let mut batch = receive(&*receiver, 100).await?;
            for queued in &batch.messages {
                ensure!(came.insert(queued.message.id.clone()), "{} came twice", queued.message.id);
            }
            let positions: Vec<_> = batch.messages.iter().map(|queued| queued.position).collect();
            batch.claim.complete(&positions).await?;
        }
        Ok(())
    }
}
