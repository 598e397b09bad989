//! Whatever is stored comes back, byte for byte (S22).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use postdate_core::{
    DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _, EncodedHeaders, Headers,
    OutgoingMessage,
};

use crate::{
    bench::Bench,
    drive::drain,
    harness::{checks, ensure_eq},
    make::{address, billing, id, long_ago, with_body},
    random::Random,
};

const MESSAGES: usize = 300;

checks! {
    async fn random_messages_come_back_byte_for_byte(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let largest = bench.capabilities()?.max_message_bytes.min(1 << 20);
        let mut random = Random::new()?;
        let outcome = there_and_back(&*store, &mut random, largest).await;
        random.seed_on_failure(outcome)
    }

    async fn bodies_of_every_length_that_databases_have_limits_at_come_back(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let largest = bench.capabilities()?.max_message_bytes.min(1 << 18);
        let powers = (3..=18).flat_map(|power: u32| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
        let lengths = (0..8).chain(powers).chain([2_000, 4_000, 8_000, 8_001, 65_500]);
        for length in lengths.filter(|length| *length <= largest) {
            let body: Vec<u8> = (0..=u8::MAX).cycle().skip(length % 251).take(length).collect();
            let sent = with_body("m", body);
            store.store_one(sent.clone()).await?;
            let came = drain(&*store, 1).await?.remove(0).message;
            ensure!(came == sent.message, "a body of {length} bytes came back with {}", came.body.len());
        }
        Ok(())
    }

    async fn headers_of_the_greatest_size_come_back(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let largest = bench.capabilities()?.max_message_bytes.min(1 << 20);
        let mut sent = with_body("m", Bytes::new());
        sent.message.headers = EncodedHeaders::from_bytes(vec![0xe4; largest]);
        store.store_one(sent.clone()).await?;
        let seen = store.get(&id("m")).await?.context("what was stored is not there")?;
        ensure!(seen.message.message == sent.message, "other headers are shown");
        ensure!(drain(&*store, 1).await?[0].message == sent.message, "other headers came back");
        Ok(())
    }
}

async fn there_and_back(store: &dyn DelayedMessageStore, random: &mut Random, largest: usize) -> Result<()> {
    let mut sent = BTreeMap::new();
    while sent.len() < MESSAGES {
        let batch: Vec<_> = (0..=random.below(20)).map(|_| any_message(random, largest)).collect();
        store.store(&batch).await?;
        sent.extend(batch.into_iter().map(|delayed| (delayed.message.id.clone(), delayed)));
    }
    for delayed in sent.values().step_by(7) {
        let seen = store.get(&delayed.message.id).await?.context("what was stored is not there")?;
        same(&seen.message.message, &delayed.message)?;
    }
    let drained = drain(store, sent.len()).await?;
    ensure!(drained.is_sorted_by_key(|due| due.due), "they came in another order");
    for due in drained {
        let sent: &DelayedMessage = sent.get(&due.message.id).context("a message that nobody stored")?;
        same(&due.message, &sent.message)?;
    }
    Ok(())
}

fn same(came: &OutgoingMessage, sent: &OutgoingMessage) -> Result<()> {
    ensure_eq!((&came.id, &came.destination), (&sent.id, &sent.destination));
    ensure!(came.headers == sent.headers, "other headers for {:?}: {:?}", sent.id, sent.headers);
    ensure!(came.body == sent.body, "another body for {:?}: of {} bytes", sent.id, sent.body.len());
    Ok(())
}

fn any_message(random: &mut Random, largest: usize) -> DelayedMessage {
    let mut delayed = with_body(any_id(random), Bytes::new());
    delayed.due = long_ago(random.below(1_000));
    if random.below(4) == 0 {
        let chars = 1 + random.below(199);
        delayed.message.destination = address(random.text(chars));
    } else {
        delayed.message.destination = billing();
    }
    delayed.message.headers = any_headers(random);
    // Large ones are rare: there are hundreds.
    let most = if random.below(50) == 0 { largest } else { 10_000.min(largest) };
    let size = random.size(most.saturating_sub(delayed.message.headers.len()));
    delayed.message.body = random.bytes(size).into();
    delayed
}

fn any_id(random: &mut Random) -> String {
    let chars = random.below(40);
    format!("{}{}", random.text(chars), random.next())
}

fn any_headers(random: &mut Random) -> EncodedHeaders {
    if random.below(3) == 0 {
        let size = random.size(3_000);
        return EncodedHeaders::from_bytes(random.bytes(size));
    }
    let mut headers = Headers::new();
    for _ in 0..random.below(12) {
        let (key, value) = (random.below(30), random.size(500));
        headers.set(random.text(key), random.text(value));
    }
    headers.encode()
}
