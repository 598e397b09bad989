//! No body and no header value in `Debug` output and errors (S23).

use std::time::Duration;

use anyhow::{Result, ensure};
use postdate_core::{
    DelayedMessage, DelayedMessageStoreExt as _, Due, EncodedHeaders, Filter, ListQuery, Message,
};

use crate::{
    bench::{Bench, GREATEST},
    canary::{SECRET, says_nothing, shows_nothing},
    drive::{failure, hold_one},
    harness::checks,
    make::{HOUR, billing, id, limit, long_ago},
};

checks! {
    async fn no_debug_output_shows_a_body_or_a_header_value(bench: &Bench) -> Result<()> {
        let (backend, store) = (bench.backend().await?, bench.store().await?);
        store.store(&[secret("held", long_ago(0)), secret("later", Due::after(HOUR))]).await?;
        shows_nothing("the backend", &backend)?;
        shows_nothing("the store", &store)?;
        shows_nothing("a message", &store.get(&id("later")).await?)?;
        shows_nothing("a list", &store.list(&ListQuery::new(Filter::default(), limit(10))).await?)?;
        shows_nothing("the counts", &store.stats().await?)?;
        let mut batch = store.fetch(limit(10)).await?;
        ensure!(batch.messages.len() == 1, "{} messages are due", batch.messages.len());
        shows_nothing("a batch", &batch)?;
        batch.claim.remove(&[id("held")]).await?;
        shows_nothing("a claim", &batch.claim)?;
        batch.claim.commit().await?;
        shows_nothing("the store", &store)
    }

    async fn no_error_shows_a_body_or_a_header_value(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let sent = secret("m", long_ago(0));
        store.store_one(sent.clone()).await?;
        let mut conflict = sent.clone();
        conflict.message.body = format!("{SECRET} and more").into();
        says_nothing("a conflict", store.store(&[sent.clone(), conflict]).await)?;
        let mut endless = secret("endless", Due::after(Duration::MAX));
        endless.message.headers = EncodedHeaders::from_bytes(SECRET);
        says_nothing("an impossible time", store.store(&[endless]).await)?;
        let most = bench.capabilities()?.max_message_bytes;
        if most < GREATEST {
            let mut large = secret("large", long_ago(0));
            large.message.body = SECRET.repeat(most / SECRET.len() + 1).into();
            says_nothing("too large a message", store.store(&[large]).await)?;
        }
        let mut held = hold_one(&*store).await?;
        held.claim.increment_failure_count(&[failure(id("m"), Duration::ZERO, "no answer")]).await?;
        let kept = store.get(&id("m")).await?.and_then(|seen| seen.last_error).unwrap_or_default();
        ensure!(!kept.contains(SECRET), "the last error shows a secret: {kept}");
        Ok(())
    }
}

fn secret(name: &str, due: Due) -> DelayedMessage {
    Message::new(SECRET).id(id(name)).header("token", SECRET).to(billing(), due)
}
