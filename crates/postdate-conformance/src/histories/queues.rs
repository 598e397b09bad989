//! Random histories of queues.

mod history;
mod model;
mod walk;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use postdate_core::Queues;

use super::search::{Search, USUAL};
use crate::{bench::Bench, harness::checks};
use history::{History, histories};
use walk::Walker;

checks! {
    async fn any_history_of_queues_goes_as_the_model_says(bench: &Bench) -> Result<()> {
        let search = Search {
            check: "any_history_of_queues_goes_as_the_model_says",
            histories: USUAL,
            at_once: 32,
            tries: 1,
            longest: Duration::from_secs(20),
            shortening: Duration::from_secs(12),
            wanted: &WANTED,
        };
        let (change, repeat) = (super::handles(bench).await?, bench.repeat());
        let handles: Arc<[Arc<dyn Queues>]> = Arc::new([bench.queues().await?, bench.queues().await?]);
        let (bench, walks) = (bench.clone(), AtomicU64::new(0));
        let walk = move |history: History| {
            let (bench, handles, walk) = (bench.clone(), Arc::clone(&handles), walks.fetch_add(1, Relaxed));
            async move { Walker::open(bench, &handles, walk).await?.walk(&history).await }
        };
        search.run(repeat, move || histories(change), walk).await
    }
}

/// What must have happened in enough histories.
const WANTED: [&str; 17] = [
    "created",
    "there already",
    "sent",
    "not sent",
    "received",
    "received nothing",
    "completed",
    "not completed",
    "abandoned",
    "not abandoned",
    "moved",
    "not moved",
    "no such queue",
    "renewed",
    "dropped",
    "purged",
    "browsed",
];
