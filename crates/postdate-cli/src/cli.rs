//! The arguments.

pub(crate) mod header;
mod parts;
mod verbs;

use clap::{Args, Parser, Subcommand};
use postdate::{EndpointName, MessageId};

use crate::exit::Exit;
pub(crate) use parts::{BodyArgs, Consent, ErrorQueue};
pub(crate) use verbs::{
    BenchArgs, ConformanceArgs, ErrorsArgs, ErrorsVerb, ListArgs, QueueVerb, ReceiveArgs, RescheduleArgs,
    RetryArgs, RunArgs, SendArgs, SetupArgs,
};

/// Postdate a message and it is delivered when it falls due, whatever happens in between.
#[derive(Debug, Parser)]
#[command(name = "postdate", version, after_help = Exit::HELP, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where the messages are, such as sqlite:postdate.db or postgres://host/database. Put a URL with a password into the variable: others
    /// can see the arguments of a running program
    #[arg(
        long,
        global = true,
        env = "POSTDATE_STORE",
        hide_env_values = true,
        default_value = "sqlite:postdate.db",
        value_name = "URL"
    )]
    pub(crate) store: String,
    /// Where the queues are, if not beside the messages, such as postgres://host/database
    #[arg(long, global = true, env = "POSTDATE_TRANSPORT", hide_env_values = true, value_name = "URL")]
    pub(crate) transport: Option<String>,
    /// Whose messages: endpoints in one store do not see each other's
    #[arg(
        long,
        global = true,
        env = "POSTDATE_ENDPOINT",
        hide_env_values = true,
        default_value = "postdate",
        value_name = "NAME"
    )]
    pub(crate) endpoint: EndpointName,
    /// Write JSON, as described in JSON.md
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing but data and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Log what happens; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Deliver what falls due, until Ctrl-C
    Run(RunArgs),
    /// Send a message to a queue: now, after a delay, or at a time
    Send(SendArgs),
    /// Take messages from a queue and write their bodies
    Receive(ReceiveArgs),
    /// Create, list, browse or purge queues
    #[command(subcommand)]
    Queue(QueueVerb),
    /// List the messages that wait for their time
    List(ListArgs),
    /// Show one waiting message with its headers and its body
    Show {
        /// The message's id
        id: MessageId,
    },
    /// Take messages back before they are sent
    Cancel {
        /// The messages' ids
        #[arg(required = true)]
        ids: Vec<MessageId>,
    },
    /// Give a waiting message another time
    Reschedule(RescheduleArgs),
    /// Look at, retry or purge what could not be delivered
    Errors(ErrorsArgs),
    /// Show what waits, what is late and who delivers
    Status(ErrorQueue),
    /// Prepare the store for the endpoint; doing it again changes nothing
    Setup(SetupArgs),
    /// Check that the store is sound and can be used
    Verify,
    /// Judge the store by the conformance suite, in scratch places beside it: its own messages are not touched
    Conformance(ConformanceArgs),
    /// Measure how fast this machine does it, beside loops written by hand. Takes minutes and all processors
    Bench(BenchArgs),
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
