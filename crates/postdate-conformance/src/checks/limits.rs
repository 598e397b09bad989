//! The greatest that is taken, and more than that (S17, S22, L7).

use anyhow::{Result, ensure};
use bytes::Bytes;
use postdate_core::{
    Address, Cancellation, DelayedMessage, DelayedMessageStoreExt as _, FetchDue, Message, StoreErrorKind,
};

use crate::{
    bench::{Bench, GREATEST},
    drive::{deliver, drain, hold_one, nothing_is_free, refused},
    harness::{checks, ensure_eq},
    make::{address, billing, id, ids, limit, long_ago, many},
};

/// More than databases take as parameters of one statement.
const MANY: usize = 2_500;

checks! {
    async fn a_message_of_the_greatest_size_comes_back(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let sent = of_size("m", bench.capabilities()?.max_message_bytes.min(GREATEST));
        store.store_one(sent.clone()).await?;
        let came = hold_one(&*store).await?.deliver().await?;
        ensure_eq!(came.message.size(), sent.message.size());
        ensure!(came.message.body == sent.message.body, "another body came back");
        Ok(())
    }

    #[needs(SizeLimit)]
    async fn a_message_over_the_limit_is_refused(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let batch = [many(1).remove(0), of_size("m", bench.capabilities()?.max_message_bytes + 1)];
        refused(store.store(&batch).await, StoreErrorKind::TooLarge)?;
        nothing_is_free(&*store).await
    }

    async fn large_messages_come_all_if_not_at_once(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let size = bench.capabilities()?.max_message_bytes.min(1 << 20);
        for i in 0..24 {
            store.store_one(of_size(&format!("m{i:02}"), size)).await?;
        }
        let batch = store.fetch(limit(100)).await?;
        ensure!(!batch.messages.is_empty(), "nothing was fetched though messages are due");
        let first = deliver(batch).await?.len();
        drain(&*store, 24 - first).await?;
        Ok(())
    }

    async fn very_many_messages_are_stored_and_removed_by_one_call(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all = many(MANY);
        let due = store.store(&all).await?;
        ensure!(due.len() == MANY && store.store(&all).await? == due);
        let mut delivered = 0;
        while delivered < MANY {
            let batch = deliver(store.fetch(limit(MANY)).await?).await?.len();
            ensure!(batch > 0, "{delivered} of {MANY} messages were fetched");
            delivered += batch;
        }
        nothing_is_free(&*store).await
    }

    async fn very_many_messages_are_cancelled_by_one_call(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let all = many(MANY);
        store.store(&all).await?;
        let answers = store.cancel(&ids(&all)).await?;
        ensure_eq!(answers, vec![Cancellation::Cancelled; MANY]);
        ensure!(store.next_due(&[]).await?.due.is_none());
        Ok(())
    }

    async fn very_many_destinations_can_be_excepted(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        let mut except: Vec<Address> = (0..MANY).map(|i| address(format!("down{i}"))).collect();
        ensure!(store.next_due(&except).await?.due.is_some());
        except.push(billing());
        ensure!(store.next_due(&except).await?.due.is_none());
        ensure!(store.fetch_due(FetchDue { limit: limit(1), except: &except }).await?.messages.is_empty());
        Ok(())
    }
}

/// A message whose headers and body have so many bytes together.
fn of_size(name: &str, bytes: usize) -> DelayedMessage {
    let mut sent = Message::new(Bytes::new()).id(id(name)).header("key", "value").to(billing(), long_ago(0));
    sent.message.body = vec![0x5a; bytes - sent.message.headers.len()].into();
    sent
}
