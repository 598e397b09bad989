//! Every decoder and parser of postdate as a function of bytes that panics where something does not hold.
//!
//! Here libFuzzer runs them for as long as one likes. Every test run of the workspace tries them for a moment: there
//! `integration-tests/tests/it/fuzz.rs` and `crates/postdate-cli/src/fuzz.rs` take in the same files.
//!
//! ```sh
//! cd fuzz    # with cargo-fuzz and a nightly toolchain
//! cargo +nightly fuzz run --fuzz-dir . headers corpus/headers seeds/headers -- -max_total_time=60
//! POSTDATE_FUZZ_FILE=fuzz/artifacts/headers/crash-.. cargo test fuzz    # in the folder above: repeats it
//! ```

#[expect(dead_code, reason = "libFuzzer makes its own inputs")]
mod brief;

mod arguments;
mod cli;
mod decoders;
mod sqlite;

use brief::Target;

/// Runs the target of this name.
///
/// # Panics
/// When something does not hold, or there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let mut all = [arguments::TARGETS, decoders::TARGETS, sqlite::TARGETS].into_iter().flatten();
    let target: &Target = all.find(|target| target.name == name).expect("a binary is named after its target");
    (target.run)(input);
}

#[expect(dead_code, reason = "the binary uses more of it")]
mod output;

#[expect(dead_code, reason = "the binary uses more of it")]
#[path = "../../crates/postdate-cli/src/presence.rs"]
mod presence;

/// Stands in for that of the binary, where it tells which file a store is in.
mod session {
    pub(crate) fn file(_: &postdate::StoreUrl) -> Option<std::path::PathBuf> {
        None
    }
}
