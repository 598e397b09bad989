//! From the arguments to the verb, and from its outcome to the exit code.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, parser::ValueSource};
use postdate::StoreUrl;
use tokio::runtime::{Builder, Runtime};

use crate::{
    cli::{Cli, Options, Verb},
    commands,
    exit::{Exit, Failure},
    output::{Format, Output, Words, escape::escape},
};

/// Runs the program.
pub(crate) fn start() -> ExitCode {
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let is_written = |name| matches.value_source(name) == Some(ValueSource::CommandLine);
        let written = ["store", "transport", "endpoint"].into_iter().filter(|name| is_written(name));
        Ok((Cli::from_arg_matches(&matches)?, written.collect::<Vec<_>>()))
    });
    let (cli, written) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(misused(&error) as u8),
    };
    let output = output(&cli.options);
    log(&cli.options);
    let urls = [
        ("store", "POSTDATE_STORE", Some(&cli.options.store)),
        ("transport", "POSTDATE_TRANSPORT", cli.options.transport.as_ref()),
    ];
    for (name, variable, url) in urls {
        if written.contains(&name) && url.is_some_and(|url| holds_secret(url)) {
            output.note(&format!(
                "the {name}'s URL on the command line holds a secret that others on this machine can see; \
                 put it into {variable} instead"
            ));
        }
    }
    if matches!(cli.verb, Verb::Conformance(_)) {
        let own = [("endpoint", "endpoints"), ("transport", "queues")];
        for (name, own) in own.into_iter().filter(|(name, _)| written.contains(name)) {
            output.note(&format!("the checks use {own} of their own; --{name} has no effect here"));
        }
    }
    match run(cli, &output) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(Failure::Said(exit, message)) => {
            output.error(exit, &message);
            ExitCode::from(exit as u8)
        }
    }
}

fn run(cli: Cli, output: &Output) -> Result<Exit, Failure> {
    let runtime = runtime(&cli.verb).map_err(|error| {
        Failure::new(
            Exit::Failure,
            format!("cannot start threads: {error}; free some resources and try again"),
        )
    })?;
    let outcome = runtime.block_on(commands::run(cli, output));
    // Whoever wants to stop at once must not wait for a call that hangs. What was acknowledged is safe.
    runtime.shutdown_background();
    outcome
}

fn output(options: &Options) -> Output {
    let format = if options.json { Format::Json } else { Format::Human };
    let words = if options.quiet { Words::Quiet } else { Words::Spoken };
    Output::new(format, words)
}

/// One thread is quickest to start and enough for one thing after another.
fn runtime(verb: &Verb) -> io::Result<Runtime> {
    match verb {
        Verb::Run(_) => Builder::new_multi_thread().enable_all().build(),
        _ => Builder::new_current_thread().enable_all().build(),
    }
}

fn log(options: &Options) {
    let filter = match options.verbose {
        0 => return,
        1 => "postdate=info,postdate_core=info,postdate_sqlite=info,postdate_postgres=info",
        _ => "postdate=debug,postdate_core=debug,postdate_sqlite=debug,postdate_postgres=debug",
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// Help goes to standard output. What is wrong with the arguments may quote them, and they may come from anywhere.
fn misused(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        let _ = error.print();
        return Exit::Ok;
    }
    let text = error.render().to_string();
    if std::env::args_os().any(|argument| argument == "--json") {
        let message =
            text.trim().trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ");
        Output::new(Format::Json, Words::Quiet).error(Exit::Usage, &message);
    } else {
        for line in text.trim_end().lines() {
            let _ = writeln!(io::stderr(), "{}", escape(line));
        }
    }
    Exit::Usage
}

fn holds_secret(url: &str) -> bool {
    const SECRETS: [&str; 6] = ["password", "pwd", "sig", "sas", "account_key", "accountkey"];
    StoreUrl::parse(url).is_ok_and(|url| {
        url.to_string().contains("://***@")
            || url.options().any(|(name, _)| SECRETS.contains(&name.to_ascii_lowercase().as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_a_url_is_noticed() {
        for url in ["postgres://me:x@host/db", "azblob://account/c?SIG=x", "mssql://host?password=x"] {
            assert!(holds_secret(url), "{url}");
        }
        for url in ["sqlite:postdate.db", "sqlite:a@b.db?durability=power", "nonsense"] {
            assert!(!holds_secret(url), "{url}");
        }
    }
}
