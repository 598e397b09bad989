//! `reschedule`: another time for a waiting message.

use std::io::{self, Write};

use jiff::Timestamp;
use postdate::Rescheduling;
use serde::Serialize;

use crate::{
    cli::{Options, RescheduleArgs},
    exit::{Exit, Failure},
    output::{Output, Report, escape::escape, time::with_relative},
    session::Session,
};

#[derive(Serialize)]
struct Rescheduled<'a> {
    id: &'a str,
    outcome: &'static str,
    due: Timestamp,
}

pub(crate) async fn run(args: &RescheduleArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let session = Session::existing(options).await?;
    let (store, id) = (session.store().await?, &args.id);
    match store.reschedule(id, args.due.due()).await? {
        Rescheduling::Rescheduled(due) => {
            store.flush().await;
            output.print(&Rescheduled { id: id.as_str(), outcome: "rescheduled", due })?;
            Ok(Exit::Ok)
        }
        Rescheduling::InFlight => {
            Err(Failure::new(Exit::InFlight, format!("too late to reschedule {id}: it is being sent")))
        }
        Rescheduling::NotFound => {
            let message = format!("no message {id} waits; `postdate list` shows those that do");
            Err(Failure::new(Exit::NotFound, message))
        }
    }
}

impl Report for Rescheduled<'_> {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  due {}", escape(self.id), with_relative(self.due, Timestamp::now()))
    }
}
