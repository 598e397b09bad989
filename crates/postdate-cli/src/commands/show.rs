//! `show`: one waiting message with everything about it.

use std::io::{self, Write};

use jiff::Timestamp;
use postdate::{MessageId, OutgoingMessage};
use serde::Serialize;

use crate::{
    cli::Options,
    commands::list::{Line, standing},
    exit::{Exit, Failure},
    output::{
        Output, Report,
        human::{content, field},
        json::Content,
        time::with_relative,
    },
    session::Session,
};

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    line: Line,
    #[serde(flatten)]
    content: Content,
    #[serde(skip)]
    message: OutgoingMessage,
}

pub(crate) async fn run(id: &MessageId, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let session = Session::existing(options).await?;
    let Some(found) = session.store().await?.get(id).await? else {
        let message =
            format!("no message {id} waits; it was sent, was cancelled, or is in `postdate errors list`");
        return Err(Failure::new(Exit::NotFound, message));
    };
    let message = found.message.message;
    let line = Line {
        id: message.id.to_string(),
        queue: message.destination.to_string(),
        due: found.message.due,
        next_attempt: found.next_attempt,
        state: found.state,
        failures: found.message.failures,
        last_error: found.last_error,
        body_bytes: message.body.len() as u64,
    };
    output.print(&Shown { line, content: Content::of(&message), message })?;
    Ok(Exit::Ok)
}

impl Report for Shown {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        let (line, now) = (&self.line, Timestamp::now());
        field(out, "id", &line.id)?;
        field(out, "queue", &line.queue)?;
        field(out, "due", &with_relative(line.due, now))?;
        field(out, "state", &standing(line.state, line.failures, line.next_attempt, now))?;
        if let Some(error) = &line.last_error {
            field(out, "last error", error)?;
        }
        content(out, &self.message.headers, &self.message.body)
    }
}
