//! How fast postdate is: each task beside a loop written by hand on the same SQLite, in the same run.
//!
//! A rate alone says more about the disk than about the program: what commits for each message is ten times
//! slower on a busy disk. So every task is a pair, measured in turns on the same disk in the same minute, and the
//! figures to look at are the *ratio* of the two rates and the *processor time* per message. The report gives
//! medians over all rounds, and what a bare `fdatasync` took.
//!
//! `cargo bench -p postdate-bench` prints the table; `-- --help` tells the options.

mod bounds;
mod contest;
mod cpu;
mod options;
mod report;
mod scenarios;
mod workload;

pub use options::Options;
pub use report::{Report, Row, Side};

/// The names of all scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    scenarios::ALL.iter().map(|scenario| scenario.name)
}

/// Runs the scenarios that `options` choose, and tells `progress` what is being done.
///
/// This takes minutes, keeps both a disk and all processors busy, and blocks: call it outside of a runtime.
///
/// # Errors
/// When no scenario has such a name, when the folder cannot be written to, and when a scenario fails.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    contest::run(options, progress)
}
