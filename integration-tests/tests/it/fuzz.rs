//! What the core and the SQLite store decode, tried with seeds and random inputs. `fuzz/` runs the same for longer.

#[path = "../../../fuzz/src/brief.rs"]
mod brief;
#[path = "../../../fuzz/src/decoders.rs"]
mod decoders;
#[path = "../../../fuzz/src/sqlite.rs"]
mod sqlite;

use std::panic;

#[test]
fn no_input_makes_a_decoder_of_the_core_fail() {
    brief::briefly(decoders::TARGETS);
}

#[test]
fn nothing_that_others_wrote_makes_the_sqlite_store_fail() {
    brief::briefly(sqlite::TARGETS);
}

/// A mistake that only inputs close to a seed come to: it is found, and the report says how to repeat it.
#[test]
fn a_planted_mistake_is_found() {
    let run = |input: &[u8]| assert!(!(input.starts_with(b"{\"b\":\"1") && input.contains(&0x1b)), "planted");
    let planted = brief::Target { name: "headers", run, rounds: 10_000 };
    let found = panic::catch_unwind(|| brief::try_all(&[planted], 1)).unwrap_err();
    let report = found.downcast_ref::<String>().unwrap();
    assert!(report.contains("repeat it: POSTDATE_FUZZ_FILE=fuzz/artifacts/headers/brief-1-"), "{report}");
    let file = report.split(['=', ' ']).find(|word| word.starts_with("fuzz/artifacts/")).unwrap();
    assert!(std::fs::read(brief::root().join(file)).unwrap().starts_with(b"{\"b\":\"1"));
    std::fs::remove_file(brief::root().join(file)).unwrap();
}
