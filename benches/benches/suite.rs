//! `cargo xtask bench` prints the table.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use postdate_bench::Options;
use test_postgres::{Server, Settings};

const USAGE: &str = "\
usage: cargo xtask bench [OPTIONS] [NAME]...

  NAME             only scenarios whose name contains this
  --quick          a tenth of the messages, one round: shows that all work, not how fast
  --rounds N       how often each is measured [default: 5]
  --folder FOLDER  where the files are made, on the disk that matters [default: .]
  --postgres URL   this server, whose user makes databases, instead of one that is started in the folder
  --peers          beside other people's queues on PostgreSQL, too, which are built first
  --json           the figures as JSON
  --list           the names of the scenarios";

enum Command {
    Help,
    List,
    Run { options: Options, json: bool },
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(execute) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> anyhow::Result<Command> {
    let (mut options, mut json) = (Options::new(), false);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| anyhow::anyhow!("{arg} needs a value; see --help"));
        match arg.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--list" => return Ok(Command::List),
            "--quick" => options = options.quick(),
            "--rounds" => options.rounds = value()?.parse()?,
            "--folder" => options.folder = value()?.into(),
            "--postgres" => options.postgres = Some(value()?),
            "--peers" => options.peers = Some(value()?.into()),
            "--json" => json = true,
            // Cargo says this to every bench.
            "--bench" => {}
            unknown if unknown.starts_with('-') => anyhow::bail!("unknown option {unknown}; see --help"),
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(Command::Run { options, json })
}

fn execute(command: Command) -> anyhow::Result<()> {
    let mut out = io::stdout();
    match command {
        Command::Help => writeln!(out, "{USAGE}")?,
        Command::List => postdate_bench::names().try_for_each(|name| writeln!(out, "{name}"))?,
        Command::Run { mut options, json } => {
            let _server = match options.postgres {
                None if options.wants_postgres() => Some(start_server(&mut options)?),
                _ => None,
            };
            let report = postdate_bench::run(&options, &mut |progress| {
                let _ = writeln!(io::stderr(), "{progress}");
            })?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
            } else {
                write!(out, "{report}")?;
            }
        }
    }
    Ok(())
}

/// Durable, and otherwise as a server of this size would be set up.
fn start_server(options: &mut Options) -> anyhow::Result<Server> {
    let settings = Settings::durable().placed_in(&options.folder).option("shared_buffers", "1GB");
    let settings = settings.option("max_wal_size", "4GB").option("checkpoint_timeout", "15min");
    let server = Server::start(&settings)?;
    options.postgres = Some(server.url());
    Ok(server)
}
