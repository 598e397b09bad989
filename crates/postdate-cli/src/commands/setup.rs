//! `setup`: the store made ready for the endpoint.

use std::io::{self, Write};

use postdate::StoreUrl;
use serde::Serialize;

use crate::{
    cli::{Options, SetupArgs},
    exit::{Exit, Failure},
    output::{Output, Report, escape::escape},
    session::{self, Session},
};

#[derive(Serialize)]
struct Ready {
    store: String,
    endpoint: String,
    ready: bool,
}

#[derive(Serialize)]
struct Script {
    store: String,
    endpoint: String,
    script: String,
}

pub(crate) async fn run(args: &SetupArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    if args.print {
        output.print(&script(options).await?)?;
        return Ok(Exit::Ok);
    }
    let session = Session::prepare(options).await?;
    output.print(&Ready {
        store: session.url.to_string(),
        endpoint: session.endpoint.to_string(),
        ready: true,
    })?;
    Ok(Exit::Ok)
}

/// What setting up would run. Leaves the store alone: connecting to a file would make it.
async fn script(options: &Options) -> Result<Script, Failure> {
    let url = StoreUrl::parse(&options.store)?;
    if session::file(&url).is_some() {
        return Err(no_script(&url));
    }
    let backend = postdate::connect(url.secret()).await?.backend;
    let script = backend.set_up_script(&options.endpoint).ok_or_else(|| no_script(&url))?;
    Ok(Script { store: url.to_string(), endpoint: options.endpoint.to_string(), script })
}

fn no_script(url: &StoreUrl) -> Failure {
    let message = format!("{url}: is not set up by statements; `postdate setup` prepares it");
    Failure::new(Exit::Failure, message)
}

impl Report for Script {
    /// As it is: it goes to a program, and a letter of it that was made harmless would mean something else there.
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.script.trim_end())
    }
}

impl Report for Ready {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  ready for the endpoint {}", escape(&self.store), escape(&self.endpoint))
    }
}
