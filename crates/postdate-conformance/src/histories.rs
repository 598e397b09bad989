//! Random histories: whatever is called in whatever order, a store answers as a model does that has no clock, no
//! disk and no other callers.
//!
//! `POSTDATE_HISTORIES=10000` tries more of them, and `POSTDATE_SEED=1000000` others.

mod belief;
mod event;
mod history;
mod model;
pub(crate) mod queues;
mod search;
mod tally;
mod time;
mod walk;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use postdate_core::{Backend, EndpointName};
use proptest::strategy::Strategy;

use crate::{
    bench::Bench,
    harness::{Need, checks},
};
use history::{Handles, History, Shape, histories, histories_with_a_pause};
use search::{Search, USUAL};
use walk::Walker;

pub(crate) use search::more_time;

checks! {
    async fn any_history_of_one_handle_goes_as_the_model_says(bench: &Bench) -> Result<()> {
        let shape = Shape { seats: 2, moments: 40, together: 1, handles: handles(bench).await? };
        let search = Search {
            check: "any_history_of_one_handle_goes_as_the_model_says",
            histories: USUAL,
            at_once: at_once(bench),
            tries: 1,
            longest: LONGEST,
            shortening: SHORTENING,
            wanted: &WANTED,
        };
        // Two endpoints.
        run(bench, search, move || histories(shape), &[(0, 0), (1, 0)]).await
    }

    async fn any_history_of_two_handles_goes_as_the_model_says(bench: &Bench) -> Result<()> {
        let shape = Shape { seats: 3, moments: 20, together: 3, handles: handles(bench).await? };
        let search = Search {
            check: "any_history_of_two_handles_goes_as_the_model_says",
            histories: USUAL,
            at_once: at_once(bench),
            tries: 20,
            longest: LONGEST,
            shortening: SHORTENING,
            wanted: &WANTED,
        };
        // One endpoint: two stores on the same handle, and one on another.
        run(bench, search, move || histories(shape), &[(0, 0), (0, 0), (0, 1)]).await
    }

    #[needs(Leases)]
    async fn any_history_in_which_leases_end_goes_as_the_model_says(bench: &Bench) -> Result<()> {
        let shape = Shape { seats: 2, moments: 24, together: 1, handles: Handles::StayOpen };
        let search = Search {
            check: "any_history_in_which_leases_end_goes_as_the_model_says",
            histories: 128,
            at_once: 128,
            tries: 1,
            longest: LONGEST + 3 * bench.lease_term().unwrap_or_default(),
            shortening: Duration::from_secs(12),
            wanted: &["leases ended", "claim lost", "removed", "not removed", "renewed"],
        };
        run(bench, search, move || histories_with_a_pause(shape), &[(0, 0), (0, 1)]).await
    }
}

const LONGEST: Duration = Duration::from_secs(20);
/// Where no walk waits, this is a matter of seconds; more of them on a busy machine.
const SHORTENING: Duration = Duration::from_secs(40);

/// What must have happened in enough histories.
const WANTED: [&str; 20] = [
    "stored",
    "conflict",
    "store refused",
    "fetched",
    "fetched nothing",
    "removed",
    "not removed",
    "failed",
    "not failed",
    "released",
    "renewed",
    "committed",
    "dropped",
    "cancelled",
    "too late to cancel",
    "nothing to cancel",
    "rescheduled",
    "too late to reschedule",
    "looked at",
    "listed",
];

/// Each history holds a few claims.
fn at_once(bench: &Bench) -> u64 {
    if bench.claims_have_connections() { 8 } else { 32 }
}

/// What is not durable may be gone with its last handle.
async fn handles(bench: &Bench) -> Result<Handles> {
    Ok(if bench.has(Need::Durability).await? { Handles::Change } else { Handles::StayOpen })
}

/// Searches, with seats each at one of the endpoints and on one of the handles. All histories are in one place, each
/// at endpoints of its own.
async fn run<S: Strategy<Value = History>>(
    bench: &Bench,
    search: Search,
    histories: impl FnOnce() -> S + Send + 'static,
    places: &'static [(usize, usize)],
) -> Result<()> {
    let repeat = bench.repeat();
    let handles: Arc<[Arc<dyn Backend>]> = Arc::new([bench.backend().await?, bench.backend().await?]);
    let (bench, walks) = (bench.clone(), AtomicU64::new(0));
    let walk = move |history: History| {
        let (bench, handles, walk) = (bench.clone(), Arc::clone(&handles), walks.fetch_add(1, Relaxed));
        async move {
            let endpoints = 1 + places.iter().map(|(endpoint, _)| *endpoint).max().unwrap_or_default();
            let names =
                (0..endpoints).map(|endpoint| EndpointName::new(format!("history {walk}-{endpoint}")));
            let names = names.collect::<Result<Vec<_>, _>>()?;
            Walker::open(bench, &handles, &names, places, history.mode).await?.walk(&history).await
        }
    };
    search.run(repeat, histories, walk).await
}
