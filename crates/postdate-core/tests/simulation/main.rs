//! Deterministic simulation: the real engine in a world of faults, judged by the crate
//! `postdate-history` and, for what only a simulation can know, by [`bounds`].
//!
//! Every seed is a world: one to three nodes on one store, clients, and its own choice of faults. Time is
//! paused, chance comes from the seed alone, so a seed repeats its run exactly. Faults stop after three minutes;
//! then everything must settle. Repeat a failure with
//!
//! ```text
//! POSTDATE_SEED=42 cargo test -p postdate-core --test simulation one_seed -- --nocapture
//! ```
//!
//! `POSTDATE_HISTORY=FILE` with it writes down what happened, for the program `judge`.

mod bounds;
mod claim;
mod clients;
mod clock;
mod destinations;
mod faults;
mod life;
mod node;
mod plan;
mod planted;
mod rng;
mod run;
mod source;
mod store;
mod trace;
mod transaction;
mod wire;
mod world;

use std::time::{SystemTime, UNIX_EPOCH};

use faults::{Counters, Planted};
use postdate_history::Event;
use run::{Outcome, run};

/// Tested in every run.
const SEEDS: u64 = 2_000;
/// Tested once, beside those; `POSTDATE_SEEDS` sets another number for a long search.
const FRESH_SEEDS: u64 = 200;
/// A long search ends with so many broken seeds.
const FEW: usize = 20;
const REPEAT: &str = "cargo test -p postdate-core --test simulation one_seed -- --nocapture";

#[test]
fn every_seed_keeps_the_promises_and_every_fault_is_seen() {
    let (mut counters, mut events) = (Counters::default(), 0);
    for seed in 0..SEEDS {
        let outcome = kept(seed);
        counters.add(&outcome.counters);
        events += outcome.counts.events;
    }
    println!("{} events in a run\n{counters:#?}", events / SEEDS);
    assert_eq!(counters.missing(), [], "these never happened in {SEEDS} seeds");
    assert_eq!(counters.spared(), [], "no process was killed there in {SEEDS} seeds");
}

#[test]
fn fresh_seeds_keep_the_promises() {
    let count = std::env::var("POSTDATE_SEEDS").map_or(FRESH_SEEDS, |count| count.parse().unwrap());
    let first = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() << 20;
    println!("{count} seeds from {first}");
    let broken: Vec<_> = (first..first + count).filter_map(broken).take(FEW).collect();
    assert!(broken.is_empty(), "{}\nrepeat one: POSTDATE_SEED=.. {REPEAT}", broken.join("\n"));
}

#[test]
fn a_seed_gives_the_same_trace_every_time() {
    for seed in 0..25 {
        assert_eq!(run(seed, None, false).hash, run(seed, None, false).hash, "seed {seed}");
    }
}

#[test]
fn a_history_that_was_written_down_is_judged_as_the_run_was() {
    for (seed, planted) in (0..10).zip([None, Some(Planted::RemoveThenSend)].into_iter().cycle()) {
        let outcome = run(seed, planted, true);
        let read = |event: &Event| {
            let line = serde_json::to_string(event).unwrap();
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
        };
        let history: Vec<Event> = outcome.history.iter().map(read).collect();
        assert_eq!(history, outcome.history);
        let verdict = postdate_history::judge(&history).unwrap();
        assert_eq!((verdict.violations, verdict.counts), (outcome.violations, outcome.counts), "seed {seed}");
    }
}

#[test]
fn one_seed() {
    let seed = std::env::var("POSTDATE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let outcome = run(seed, None, true);
    println!("{}hash {:016x}\n{}", outcome.trace, outcome.hash, outcome.counts);
    if let Some(file) = std::env::var_os("POSTDATE_HISTORY") {
        postdate_history::file::write(file.as_ref(), &outcome.history).unwrap();
    }
    assert!(outcome.violations.is_empty(), "seed {seed} breaks\n{}", outcome.complaints());
}

/// Says what a seed breaks, if anything.
fn broken(seed: u64) -> Option<String> {
    let violations = run(seed, None, false).violations;
    violations.first().map(|violation| format!("seed {seed} breaks {violation}"))
}

fn kept(seed: u64) -> Outcome {
    let outcome = run(seed, None, false);
    assert!(
        outcome.violations.is_empty(),
        "seed {seed} breaks\n{}repeat it: POSTDATE_SEED={seed} {REPEAT}",
        outcome.complaints()
    );
    outcome
}
