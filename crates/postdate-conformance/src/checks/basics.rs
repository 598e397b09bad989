//! What is stored comes back as it was, and survives (S1, S2, S8, S22).

use anyhow::{Result, ensure};
use postdate_core::{
    DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _, Due, EncodedHeaders, MessageState,
};

use crate::{
    bench::Bench,
    drive::{drain, hold_one, nothing_is_free},
    harness::{checks, ensure_eq},
    make::{HOUR, address, id, long_ago, many, message, message_for, with_body},
};

checks! {
    async fn any_body_comes_back_byte_for_byte(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let every_byte: Vec<u8> = (0..=u8::MAX).collect();
        let large: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for body in [vec![], vec![0], every_byte, "ä€\u{1f4e6}\r\n' \" \\ \u{feff}".into(), large] {
            comes_back(&*store, with_body("m", body)).await?;
        }
        Ok(())
    }

    async fn any_headers_come_back_byte_for_byte(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let blobs: [&[u8]; 6] = [
            b"",
            br#"{"b":"1","a":"2"}"#,
            br#"{ "a" : "2" }"#,
            b"<headers/>",
            b"\0\xff\xfe",
            "{\"ä\":\"'\"}".as_bytes(),
        ];
        for blob in blobs {
            let mut sent = with_body("m", "body");
            sent.message.headers = EncodedHeaders::from_bytes(blob);
            comes_back(&*store, sent).await?;
        }
        Ok(())
    }

    async fn ids_and_destinations_of_any_letters_come_back(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let texts =
            ["x", "a b ", "o'r\"d\\e%r_[s]", "äöü€\u{1f4e6}", "'; DROP TABLE messages; --", "ID", "id"];
        for text in texts.iter().map(|text| (*text).to_owned()).chain(["ä".repeat(200), "x".repeat(200)]) {
            comes_back(&*store, message_for(&text, &address(&text), long_ago(0))).await?;
        }
        comes_back(&*store, message("ö".repeat(250), long_ago(0))).await
    }

    async fn ids_that_differ_only_in_case_or_spaces_are_different(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let names = ["order", "Order", "ORDER", "order ", " order", "ordér", "orde\u{301}r"];
        let all: Vec<_> = names.iter().enumerate().map(|(i, name)| message(name, long_ago(i))).collect();
        store.store(&all).await?;
        let drained = drain(&*store, all.len()).await?;
        ensure!(drained.iter().map(|due| due.message.id.as_str()).eq(names), "{drained:?}");
        Ok(())
    }

    async fn a_stored_message_can_be_looked_at(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        let sent = message("m", Due::after(HOUR));
        let due = store.store_one(sent.clone()).await?;
        for handle in [&store, &other] {
            let seen = handle.get(&id("m")).await?;
            let Some(seen) = seen else { anyhow::bail!("what was stored is not there") };
            ensure_eq!(seen.message.message, sent.message);
            ensure_eq!((seen.message.due, seen.next_attempt), (due, due));
            ensure_eq!(
                (seen.state, seen.message.failures, seen.last_error),
                (MessageState::Pending, 0, None)
            );
            ensure!(handle.get(&id("another")).await?.is_none(), "a message that was never stored is there");
        }
        Ok(())
    }

    async fn a_fetched_message_has_the_due_time_that_was_answered(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let due = store.store_one(message("m", Due::NOW)).await?;
        let held = hold_one(&*store).await?;
        ensure_eq!((held.message.due, held.message.failures), (due, 0));
        Ok(())
    }

    #[needs(Durability)]
    async fn what_was_stored_survives_reopening(bench: &Bench) -> Result<()> {
        let sent = many(20);
        let store = bench.store().await?;
        store.store(&sent).await?;
        drop(store);
        let reopened = bench.store().await?;
        let drained = drain(&*reopened, sent.len()).await?;
        ensure!(drained.iter().map(|due| &due.message).eq(sent.iter().map(|delayed| &delayed.message)));
        Ok(())
    }

    #[needs(Durability)]
    async fn what_was_removed_stays_removed_after_reopening(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(2)).await?;
        hold_one(&*store).await?.deliver().await?;
        drop(store);
        let reopened = bench.store().await?;
        let drained = drain(&*reopened, 1).await?;
        ensure_eq!(drained[0].message.id, id("m00001"));
        Ok(())
    }
}

/// Stores a message that is due, fetches it, compares, and removes it.
async fn comes_back(store: &dyn DelayedMessageStore, sent: DelayedMessage) -> Result<()> {
    store.store(std::slice::from_ref(&sent)).await?;
    let came = hold_one(store).await?.deliver().await?.message;
    ensure!(came.id == sent.message.id, "id {:?} came back as {:?}", sent.message.id, came.id);
    ensure!(
        came.destination == sent.message.destination,
        "{:?} became {:?}",
        sent.message.destination,
        came.destination
    );
    ensure!(came.headers == sent.message.headers, "other headers came back for {:?}", came.id);
    ensure!(
        came.body == sent.message.body,
        "another body came back: {} bytes of {}",
        came.body.len(),
        sent.message.body.len()
    );
    nothing_is_free(store).await
}
