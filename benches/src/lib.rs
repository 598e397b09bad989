//! How fast postdate is: each task beside a loop written by hand on the same database, in the same run.
//!
//! A rate alone says more about the disk than about the program: what commits for each message is ten times
//! slower on a busy disk. So all who do a task are measured in turns on the same disk in the same minute, and the
//! figures to look at are the *ratio* of the rates and the *processor time* per message. The report gives
//! medians over all rounds, and what a bare `fdatasync` took.
//!
//! On PostgreSQL (feature `postgres`) other people's queues take turns, too, and each round has a new database.
//! Processor time includes the server's, if that runs on this machine; what it writes to its log per message says what
//! a disk or a replica has to bear.
//!
//! `cargo xtask bench` prints the table; `cargo xtask bench -- --help` tells the options.

mod bounds;
mod contest;
mod cpu;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
mod report;
mod scenarios;
mod workload;

pub use options::Options;
pub use report::{Report, Row, Side};

/// The names of all scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    scenarios::SQLITE.iter().chain(scenarios::POSTGRES).map(|scenario| scenario.name)
}

/// Runs the scenarios that `options` choose, and tells `progress` what is being done.
///
/// This takes minutes, keeps both a disk and all processors busy, and blocks: call it outside of a runtime.
///
/// # Errors
/// When no scenario has such a name, when it needs a server and there is none, when the folder cannot be written to, and
/// when a scenario fails.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    contest::run(options, progress)
}
