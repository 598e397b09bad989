//! Groups of arguments that verbs are put together from.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use postdate::{Address, Due, TransactionMode};

use crate::output::time::{parse_delay, parse_time};

/// The transaction modes, as they are written in an argument.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// Nothing holds together: at least once
    None,
    /// Fetching and removing are one claim: at least once
    ReceiveOnly,
    /// As receive-only, and what handling a message sends goes out with it: at least once
    SendsAtomicWithReceive,
    /// Fetching, sending and removing are one transaction: exactly once
    TransactionScope,
}

impl From<Mode> for TransactionMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::None => Self::None,
            Mode::ReceiveOnly => Self::ReceiveOnly,
            Mode::SendsAtomicWithReceive => Self::SendsAtomicWithReceive,
            Mode::TransactionScope => Self::TransactionScope,
        }
    }
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct BodyArgs {
    /// What it says
    pub(crate) body: Option<String>,
    /// Take the body from a file, or from standard input with -
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct DueArgs {
    /// So long from now: 90s, 30m, 2h15m, 1d, 1mo, PT30M
    #[arg(long = "in", value_name = "DELAY", value_parser = parse_delay, allow_hyphen_values = true)]
    after: Option<Duration>,
    /// At this time: 2026-12-25T08:00:00Z, 2026-12-25T08:00+01:00[Europe/Berlin], 2026-12-25T08:00
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    at: Option<Timestamp>,
}

impl DueArgs {
    /// The due time that was asked for; now, if none was.
    pub(crate) fn due(&self) -> Due {
        match (self.after, self.at) {
            (Some(delay), _) => Due::after(delay),
            (None, Some(time)) => Due::at(time),
            (None, None) => Due::NOW,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Consent {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct Paging {
    /// At most so many
    #[arg(long, value_name = "N", default_value = "50")]
    limit: NonZeroUsize,
    /// All there are
    #[arg(long)]
    all: bool,
}

impl Paging {
    /// How many to show at most.
    pub(crate) fn limit(&self) -> usize {
        if self.all { usize::MAX } else { self.limit.get() }
    }
}

#[derive(Args, Debug)]
pub(crate) struct ErrorQueue {
    /// The queue for what could not be delivered
    #[arg(long = "error-queue", global = true, value_name = "QUEUE", default_value = "error")]
    pub(crate) name: Address,
}
