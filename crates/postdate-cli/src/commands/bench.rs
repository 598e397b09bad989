//! `bench`: how fast this machine does it.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    cli::BenchArgs,
    exit::{Exit, Failure},
    output::{Output, Report, escape::escape},
};

#[derive(Serialize)]
struct Scenario {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(transparent)]
struct Measured(postdate_bench::Report);

pub(crate) async fn run(args: &BenchArgs, output: &Output) -> Result<Exit, Failure> {
    if args.list {
        let scenarios: Vec<_> = postdate_bench::names().map(|name| Scenario { name }).collect();
        output.print_all(&scenarios)?;
        return Ok(Exit::Ok);
    }
    let unknown = |name: &&String| !postdate_bench::names().any(|known| known.contains(name.as_str()));
    if let Some(name) = args.names.iter().find(unknown) {
        let message = format!("no scenario is called {name}; `postdate bench --list` shows those there are");
        return Err(Failure::usage(message));
    }
    let (options, told) = (options(args), *output);
    // The benches bring runtimes of their own, which cannot be started from within this one.
    let benches = move || postdate_bench::run(&options, &mut |progress| told.note(progress));
    match tokio::task::spawn_blocking(benches).await {
        Ok(Ok(report)) => output.print(&Measured(report)).map(|()| Exit::Ok),
        Ok(Err(error)) => Err(Failure::new(Exit::Failure, format!("{error:#}"))),
        Err(panicked) => Err(Failure::new(Exit::Failure, format!("a bench ended half-way: {panicked}"))),
    }
}

fn options(args: &BenchArgs) -> postdate_bench::Options {
    let mut options = postdate_bench::Options::new();
    options.rounds = args.rounds.get();
    if args.quick {
        options = options.quick();
    }
    options.names.clone_from(&args.names);
    options.folder.clone_from(&args.folder);
    options
}

impl Report for Scenario {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", escape(self.name))
    }
}

impl Report for Measured {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{}", self.0)
    }
}
