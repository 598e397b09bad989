//! `completions`: what a shell needs to know.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::{
    cli::Cli,
    exit::{Exit, Failure},
};

pub(crate) fn run(shell: Shell) -> Result<Exit, Failure> {
    // Into memory first: the generator panics when its writer fails, and a reader may go away.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "postdate", &mut script);
    io::stdout().write_all(&script)?;
    Ok(Exit::Ok)
}
