//! Setting up, and endpoints that never see each other's messages (S15, S18).

use anyhow::{Context as _, Result, ensure};
use postdate_core::{Cancellation, DelayedMessageStoreExt as _, StoreErrorKind};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{deliver, drain, hold_one, nothing_is_free, refused},
    harness::{checks, ensure_eq},
    make::{HOSTILE_NAMES, endpoint, id, limit, many, with_body},
};

checks! {
    async fn a_store_that_was_not_set_up_is_refused(bench: &Bench) -> Result<()> {
        let endpoint = endpoint();
        let mode = *bench.capabilities()?.modes.first().context("the store supports no mode at all")?;
        let backend = bench.backend().await?;
        refused(backend.open(&endpoint, mode).await, StoreErrorKind::NotSetUp)?;
        backend.set_up(&endpoint).await?;
        backend.open(&endpoint, mode).await?;
        Ok(())
    }

    async fn setting_up_again_changes_nothing(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.store(&many(3)).await?;
        let held = hold_one(&*store).await?;
        for _ in 0..3 {
            bench.backend().await?.set_up(&endpoint()).await?;
        }
        held.deliver().await?;
        drain(&*store, 2).await?;
        Ok(())
    }

    async fn eight_may_set_up_at_once(bench: &Bench) -> Result<()> {
        let endpoint = endpoint();
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let (backend, endpoint) = (bench.backend().await?, endpoint.clone());
            tasks.spawn(async move { backend.set_up(&endpoint).await });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let store = bench.store().await?;
        store.store(&many(1)).await?;
        drain(&*store, 1).await?;
        Ok(())
    }

    async fn endpoints_never_see_each_others_messages(bench: &Bench) -> Result<()> {
        let mut stores = Vec::new();
        for name in HOSTILE_NAMES {
            let store = bench.store_for(name).await.with_context(|| format!("endpoint {name:?}"))?;
            // The same id everywhere: it identifies a message within its endpoint only.
            store.store_one(with_body("m", name)).await.with_context(|| format!("endpoint {name:?}"))?;
            stores.push((name, store));
        }
        for (name, store) in stores {
            ensure!(store.stats().await?.pending == 1, "endpoint {name:?} sees others' messages");
            let came = hold_one(&*store).await?.deliver().await?;
            ensure!(
                came.message.body == name,
                "endpoint {name:?} fetched a message of {:?}",
                came.message.body
            );
            nothing_is_free(&*store).await?;
        }
        Ok(())
    }

    async fn endpoints_with_the_longest_names_are_told_apart(bench: &Bench) -> Result<()> {
        let mut stores = Vec::new();
        // Cut off at any length, folded or hashed by bytes, two of them would be one.
        for begin in ["a".repeat(99), "ä".repeat(99), "\u{1f4e6}".repeat(99)] {
            for end in ["b", "B", "ä", "."] {
                let name = format!("{begin}{end}");
                let store = bench.store_for(&name).await.with_context(|| format!("endpoint {name:?}"))?;
                store.store_one(with_body("m", name.clone())).await?;
                stores.push((name, store));
            }
        }
        for (name, store) in stores {
            let came = drain(&*store, 1).await.with_context(|| format!("endpoint {name:?}"))?;
            ensure!(came[0].message.body == name, "endpoint {name:?} fetched another one's message");
        }
        Ok(())
    }

    async fn what_one_endpoint_holds_is_not_held_in_another(bench: &Bench) -> Result<()> {
        let (one, other) = (bench.store_for("one").await?, bench.store_for("other").await?);
        one.store(&many(2)).await?;
        other.store(&many(2)).await?;
        let held = hold_one(&*one).await?;
        ensure_eq!(other.cancel(&[id("m00000")]).await?, [Cancellation::Cancelled]);
        let batch = other.fetch(limit(5)).await?;
        ensure!(!batch.contended, "one endpoint is in the way of another");
        ensure_eq!(deliver(batch).await?.len(), 1);
        held.deliver().await?;
        drain(&*one, 1).await?;
        Ok(())
    }

    async fn cancelling_in_one_endpoint_leaves_the_others_alone(bench: &Bench) -> Result<()> {
        let (one, other) = (bench.store_for("one").await?, bench.store_for("other").await?);
        one.store(&many(2)).await?;
        ensure_eq!(other.cancel(&[id("m00000")]).await?, [Cancellation::NotFound]);
        other.store(&many(2)).await?;
        ensure_eq!(other.cancel(&[id("m00000")]).await?, [Cancellation::Cancelled]);
        drain(&*one, 2).await?;
        drain(&*other, 1).await?;
        Ok(())
    }
}
