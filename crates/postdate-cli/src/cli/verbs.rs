//! The arguments of single verbs.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use postdate::{Address, Filter, MessageId};

use super::{
    header::parse_header,
    parts::{BodyArgs, Consent, DueArgs, ErrorQueue, Mode, Paging},
};
use crate::output::time::{parse_delay, parse_time};

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Try a failed delivery so many times again before the message goes to the error queue
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u32,
    /// Fetch so many messages at once
    #[arg(long, value_name = "N")]
    pub(crate) batch_size: Option<NonZeroUsize>,
    /// Keep so many batches on their way at once
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<NonZeroUsize>,
    /// When stopping, wait so long for what is on its way
    #[arg(long, value_name = "DELAY", value_parser = parse_delay)]
    pub(crate) drain_time: Option<Duration>,
    /// When catching up after a pause, deliver at most so many messages a second
    #[arg(long, value_name = "N")]
    pub(crate) catch_up_rate: Option<NonZeroU32>,
    /// Move what is later than this to the error queue instead of delivering it
    #[arg(long, value_name = "DELAY", value_parser = parse_delay)]
    pub(crate) max_lateness: Option<Duration>,
    /// How strongly fetching, sending and removing hold together [default: as strongly as can be]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    #[command(flatten)]
    pub(crate) errors: ErrorQueue,
}

#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// The queue it goes to
    pub(crate) queue: Address,
    #[command(flatten)]
    pub(crate) body: BodyArgs,
    #[command(flatten)]
    pub(crate) due: DueArgs,
    /// An id of your own; sending the same again under it changes nothing
    #[arg(long)]
    pub(crate) id: Option<MessageId>,
    /// A header; may be given many times
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = parse_header)]
    pub(crate) headers: Vec<(String, String)>,
}

#[derive(Args, Debug)]
pub(crate) struct ReceiveArgs {
    /// The queue; it is created if there is none
    pub(crate) queue: Address,
    /// Wait for more, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// Stop after so many
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroUsize>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueVerb {
    /// Create queues
    Create {
        /// Their names
        #[arg(required = true)]
        names: Vec<Address>,
    },
    /// List all queues with how much is in them
    List,
    /// Remove all messages of a queue
    Purge {
        /// The queue
        name: Address,
        #[command(flatten)]
        consent: Consent,
    },
    /// Look at the messages of a queue without taking them
    Browse {
        /// The queue
        name: Address,
        #[command(flatten)]
        paging: Paging,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only for this queue
    #[arg(long)]
    queue: Option<Address>,
    /// Only ids that begin so
    #[arg(long, value_name = "PREFIX")]
    id_prefix: Option<String>,
    /// Only those due before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    due_before: Option<Timestamp>,
    /// Only those due at this time or later
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    due_from: Option<Timestamp>,
    /// Only those with failed attempts
    #[arg(long)]
    failing: bool,
    #[command(flatten)]
    pub(crate) paging: Paging,
}

impl ListArgs {
    /// What to list.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            destination: self.queue.clone(),
            id_prefix: self.id_prefix.clone(),
            due_before: self.due_before,
            due_from: self.due_from,
            min_failures: u32::from(self.failing),
        }
    }
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["after", "at", "now"]))]
pub(crate) struct RescheduleArgs {
    /// The message's id
    pub(crate) id: MessageId,
    #[command(flatten)]
    pub(crate) due: DueArgs,
    /// At once
    #[arg(long)]
    now: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ErrorsArgs {
    #[command(flatten)]
    pub(crate) error_queue: ErrorQueue,
    #[command(subcommand)]
    pub(crate) verb: ErrorsVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ErrorsVerb {
    /// List what could not be delivered and why
    List {
        /// Only what was for this queue
        #[arg(long)]
        queue: Option<Address>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one with its headers and its body
    Show {
        /// The message's id
        id: MessageId,
    },
    /// Deliver again: back to the store under the same id, due now
    Retry(RetryArgs),
    /// Remove all for good
    Purge {
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Args, Debug)]
pub(crate) struct RetryArgs {
    /// The messages' ids
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(crate) ids: Vec<MessageId>,
    /// All that are there now
    #[arg(long)]
    pub(crate) all: bool,
    /// Of all, only what was for this queue
    #[arg(long, requires = "all")]
    pub(crate) queue: Option<Address>,
}

#[derive(Args, Debug)]
pub(crate) struct SetupArgs {
    /// Set up nothing; write the statements that would do it, for somebody who may make tables
    #[arg(long)]
    pub(crate) print: bool,
}

#[derive(Args, Debug)]
#[command(after_help = ConformanceArgs::HELP)]
pub(crate) struct ConformanceArgs {
    /// Only checks that have this in their name or in that of their group, such as stores/claims, or "any history";
    /// may be given many times
    #[arg(long = "filter", value_name = "TEXT")]
    pub(crate) filters: Vec<String>,
    /// Make so many checks at a time [default: one per processor, at most 4]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Only show the names of the checks
    #[arg(long)]
    pub(crate) list: bool,
}

impl ConformanceArgs {
    const HELP: &'static str = "\
It takes about a minute, and judges how the place works, not what is in the store; for that see `verify`.
The checks use endpoints and queues of their own: --endpoint and --transport have no effect.

Examples:
  postdate conformance --filter queues/browsing
  postdate conformance --filter 'any history' --filter cancel

Environment:
  POSTDATE_HISTORIES=N  try N random histories instead of 256
  POSTDATE_SEED=N       begin with this one, as a failure says
  POSTDATE_LARGE=N      make the large backlog of N messages instead of 20,000";
}

fn at_least_one(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "write a number of at least 1")
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Only scenarios whose name contains one of these
    pub(crate) names: Vec<String>,
    /// A tenth of the messages, one round: shows that all work, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure each pair so often
    #[arg(long, value_name = "N", default_value = "5", conflicts_with = "quick")]
    pub(crate) rounds: NonZeroUsize,
    /// Where the files are made, on the disk that matters
    #[arg(long, default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Only show the names of the scenarios
    #[arg(long)]
    pub(crate) list: bool,
}
