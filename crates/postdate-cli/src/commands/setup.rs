//! `setup`: the store made ready for the endpoint.

use std::io::{self, Write};

use serde::Serialize;

use crate::{
    cli::Options,
    exit::{Exit, Failure},
    output::{Output, Report, escape::escape},
    session::Session,
};

#[derive(Serialize)]
struct Ready {
    store: String,
    endpoint: String,
    ready: bool,
}

pub(crate) async fn run(options: &Options, output: &Output) -> Result<Exit, Failure> {
    let session = Session::prepare(options).await?;
    output.print(&Ready {
        store: session.url.to_string(),
        endpoint: session.endpoint.to_string(),
        ready: true,
    })?;
    Ok(Exit::Ok)
}

impl Report for Ready {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  ready for the endpoint {}", escape(&self.store), escape(&self.endpoint))
    }
}
