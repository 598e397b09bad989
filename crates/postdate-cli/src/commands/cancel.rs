//! `cancel`: messages taken back before they are sent.

use std::io::{self, Write};

use postdate::{Cancellation, MessageId};
use serde::{Serialize, Serializer};

use crate::{
    cli::Options,
    exit::{Exit, Failure},
    output::{Output, Report, escape::escape},
    session::Session,
};

#[derive(Serialize)]
struct Answer<'a> {
    id: &'a str,
    #[serde(serialize_with = "word")]
    outcome: Cancellation,
}

pub(crate) async fn run(ids: &[MessageId], options: &Options, output: &Output) -> Result<Exit, Failure> {
    let session = Session::existing(options).await?;
    let outcomes = session.store().await?.cancel(ids).await?;
    let answers: Vec<_> =
        ids.iter().zip(&outcomes).map(|(id, &outcome)| Answer { id: id.as_str(), outcome }).collect();
    output.print_all(&answers)?;
    Ok(outcomes.into_iter().map(code).max().unwrap_or(Exit::Ok))
}

fn word<S: Serializer>(outcome: &Cancellation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match outcome {
        Cancellation::Cancelled => "cancelled",
        Cancellation::InFlight => "in_flight",
        Cancellation::NotFound => "not_found",
    })
}

fn code(outcome: Cancellation) -> Exit {
    match outcome {
        Cancellation::Cancelled => Exit::Ok,
        Cancellation::InFlight => Exit::InFlight,
        Cancellation::NotFound => Exit::NotFound,
    }
}

impl Report for Answer<'_> {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        let words = match self.outcome {
            Cancellation::Cancelled => "cancelled",
            Cancellation::InFlight => "too late: it is being sent",
            Cancellation::NotFound => "not found: it was sent, was cancelled, or never there",
        };
        writeln!(out, "{}  {words}", escape(self.id))
    }
}
