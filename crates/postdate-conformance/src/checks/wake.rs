//! Waking those who wait for the next due time (L3, L5).

use std::time::Duration;

use anyhow::{Result, ensure};
use postdate_core::{DelayedMessageStoreExt as _, Due};
use tokio::{
    runtime::Builder,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use crate::{
    bench::Bench,
    drive::hold_one,
    harness::checks,
    make::{HOUR, id, long_ago, message},
    patience::{quiet, woken_by},
};

checks! {
    #[needs(WakeUps)]
    async fn a_wait_ends_when_a_message_is_due_earlier(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store_one(message("later", Due::after(2 * HOUR))).await?;
        // Of what is more than a minute ahead nobody need be told.
        for (name, due) in [("soon", Due::after(Duration::from_secs(50))), ("now", Due::NOW)] {
            store.next_due(&[]).await?;
            quiet(&*store).await;
            let woken = woken_by(&*store);
            let stored = async { Ok(other.store_one(message(name, due)).await?) };
            tokio::try_join!(woken, stored)?;
        }
        hold_one(&*store).await?.deliver().await?;
        Ok(())
    }

    #[needs(WakeUps)]
    async fn a_change_between_two_calls_is_not_missed(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        for round in 0..20 {
            store.next_due(&[]).await?;
            store.store_one(message(format!("m{round}"), long_ago(0))).await?;
            woken_by(&*store).await?;
            hold_one(&*store).await?.deliver().await?;
        }
        Ok(())
    }

    #[needs(WakeUps)]
    async fn a_wait_ends_when_a_message_is_rescheduled_to_be_earlier(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store_one(message("m", Due::after(HOUR))).await?;
        store.next_due(&[]).await?;
        quiet(&*store).await;
        other.reschedule(&id("m"), Due::NOW).await?;
        woken_by(&*store).await?;
        hold_one(&*store).await?.deliver().await?;
        Ok(())
    }

    #[needs(WakeUps)]
    async fn what_was_stored_wakes_others_though_the_process_that_stored_it_ends(bench: &Bench) -> Result<()> {
        let store = bench.store().await?;
        store.next_due(&[]).await?;
        quiet(&*store).await;
        let there = bench.clone();
        // A runtime that ends is as much of a process as there is here.
        let process = spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let stored = runtime.block_on(async {
                let other = there.store().await?;
                other.store_one(message("soon", Due::after(Duration::from_secs(50)))).await?;
                other.flush().await;
                Ok(())
            });
            runtime.shutdown_background();
            stored
        });
        let stored: Result<()> = process.await?;
        stored?;
        woken_by(&*store).await
    }

    async fn a_wait_does_not_end_all_the_time_for_no_reason(bench: &Bench) -> Result<()> {
        let (store, other) = (bench.store().await?, bench.store().await?);
        store.store_one(message("soon", Due::after(HOUR))).await?;
        store.next_due(&[]).await?;
        other.store_one(message("later", Due::after(2 * HOUR))).await?;
        let end = Instant::now() + Duration::from_millis(300);
        let mut wake_ups = 0;
        while timeout_at(end, store.changed()).await.is_ok() {
            store.next_due(&[]).await?;
            wake_ups += 1;
            ensure!(wake_ups <= 20, "changed() completes again and again though nothing is due earlier");
        }
        Ok(())
    }
}
