//! Schemas of other versions, and users who may make no tables (S18).

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use postdate_core::{
    Cancellation, DelayedMessageStoreExt as _, Due, EndpointName, Rescheduling, StoreError, StoreErrorKind,
};

use crate::{
    Meddling,
    bench::Bench,
    drive::{drain, hold_one, refused},
    harness::{checks, ensure_eq},
    make::{HOUR, endpoint, id, many, message},
};

checks! {
    async fn a_newer_schema_is_refused_and_left_alone(bench: &Bench) -> Result<()> {
        let sent = many(3);
        bench.store().await?.store(&sent).await?;
        bench.meddle(Meddling::NewerSchema).await?;
        for _ in 0..2 {
            match bench.backend().await {
                Err(error) => ensure_eq!(kind(&error), Some(StoreErrorKind::TooNew)),
                Ok(backend) => {
                    refused(backend.set_up(&endpoint()).await, StoreErrorKind::TooNew)?;
                    refused(backend.open(&endpoint(), bench.usual_mode()?).await, StoreErrorKind::TooNew)?;
                }
            }
        }
        bench.meddle(Meddling::CurrentSchema).await?;
        let drained = drain(&*bench.store().await?, sent.len()).await?;
        ensure!(drained.iter().map(|due| &due.message).eq(sent.iter().map(|delayed| &delayed.message)));
        Ok(())
    }

    async fn an_older_schema_is_brought_up_and_keeps_its_messages(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        let sent = many(3);
        store.store(&sent).await?;
        store.store_one(message("later", Due::after(HOUR))).await?;
        hold_one(&*store).await?.fail(Duration::ZERO, "no answer").await?;
        drop(store);
        bench.meddle(Meddling::OlderSchema).await?;
        let store = bench.store().await?;
        let mut drained = drain(&*store, sent.len()).await?;
        drained.sort_by_key(|due| due.due);
        ensure!(drained.iter().map(|due| &due.message).eq(sent.iter().map(|delayed| &delayed.message)));
        ensure!(drained.iter().map(|due| due.failures).eq([1, 0, 0]), "other failures: {drained:?}");
        ensure_eq!(store.cancel(&[id("later")]).await?, [Cancellation::Cancelled]);
        store.store(&sent).await?;
        drain(&*store, sent.len()).await?;
        Ok(())
    }

    async fn without_the_right_to_make_tables_all_but_setting_up_works(bench: &Bench) -> Result<()> {
        drop(bench.store().await?);
        bench.meddle(Meddling::NoRightToMakeTables).await?;
        let backend = bench.backend().await?;
        let open = async || backend.open(&endpoint(), bench.usual_mode()?).await.context("opening");
        let (store, other) = (open().await?, open().await?);
        store.store(&many(3)).await.context("storing")?;
        let first = hold_one(&*store).await.context("fetching")?;
        first.fail(Duration::ZERO, "no answer").await.context("counting a failure")?;
        ensure_eq!(other.cancel(&[id("m00001")]).await.context("cancelling")?, [Cancellation::Cancelled]);
        let rescheduled = other.reschedule(&id("m00002"), Due::NOW).await.context("rescheduling")?;
        ensure!(matches!(rescheduled, Rescheduling::Rescheduled(_)));
        ensure!(other.get(&id("m00002")).await.context("looking")?.is_some());
        ensure_eq!(other.stats().await.context("counting")?.pending, 2);
        drain(&*store, 2).await.context("removing")?;
        Ok(())
    }

    async fn setting_up_without_the_right_to_make_tables_says_so(bench: &Bench) -> Result<()> {
        let mode = bench.usual_mode()?;
        bench.store().await?.store(&many(1)).await?;
        bench.meddle(Meddling::NoRightToMakeTables).await?;
        let backend = bench.backend().await?;
        backend.set_up(&endpoint()).await.context("setting up where nothing is to be made")?;
        let new = EndpointName::new("nobody set this up")?;
        if !allowed_or_explained(backend.set_up(&new).await)? {
            refused(backend.open(&new, mode).await, StoreErrorKind::NotSetUp)?;
        }
        drain(&*backend.open(&endpoint(), mode).await?, 1).await?;
        Ok(())
    }
}

/// Whether it was done; fails if it was refused for any reason but the missing right.
fn allowed_or_explained(done: Result<(), StoreError>) -> Result<bool> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == StoreErrorKind::Configuration => Ok(false),
        Err(error) => {
            bail!("a missing right is a matter of configuration, not of {:?}: {error}", error.kind())
        }
    }
}

fn kind(error: &anyhow::Error) -> Option<StoreErrorKind> {
    error.downcast_ref::<StoreError>().map(StoreError::kind)
}
