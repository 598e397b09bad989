//! One file per verb.

mod bench;
mod cancel;
mod completions;
mod conformance;
mod errors;
mod list;
mod queue;
mod receive;
mod reschedule;
mod run;
mod send;
mod setup;
mod show;
mod status;
mod verify;

use crate::{
    cli::{Cli, Verb},
    exit::{Exit, Failure},
    output::Output,
};

/// Carries out what was asked for.
pub(crate) async fn run(cli: Cli, output: &Output) -> Result<Exit, Failure> {
    let Cli { options, verb } = cli;
    match verb {
        Verb::Run(args) => run::run(&args, &options, output).await,
        Verb::Send(args) => send::run(args, &options, output).await,
        Verb::Receive(args) => receive::run(&args, &options, output).await,
        Verb::Queue(verb) => queue::run(&verb, &options, output).await,
        Verb::List(args) => list::run(&args, &options, output).await,
        Verb::Show { id } => show::run(&id, &options, output).await,
        Verb::Cancel { ids } => cancel::run(&ids, &options, output).await,
        Verb::Reschedule(args) => reschedule::run(&args, &options, output).await,
        Verb::Errors(args) => errors::run(&args, &options, output).await,
        Verb::Status(error_queue) => status::run(&error_queue.name, &options, output).await,
        Verb::Setup(args) => setup::run(&args, &options, output).await,
        Verb::Verify => verify::run(&options, output).await,
        Verb::Conformance(args) => conformance::run(&args, &options, output).await,
        Verb::Bench(args) => bench::run(&args, output).await,
        Verb::Completions { shell } => completions::run(shell),
    }
}
