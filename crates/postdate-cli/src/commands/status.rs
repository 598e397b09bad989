//! `status`: what waits, what is late and who delivers.

mod dispatcher;

use std::io::{self, Write};

use jiff::Timestamp;
use postdate::{Address, Stats};
use serde::Serialize;

use crate::{
    cli::Options,
    commands::queue::Depth,
    exit::{Exit, Failure},
    output::{
        Output, Report,
        escape::escape,
        human::{Table, age, field},
        time::with_relative,
    },
    session::Session,
};
use dispatcher::{Delivery, Dispatcher};

/// Messages overdue for longer than this while nobody delivers are an alarm.
const SILENCE: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

#[derive(Serialize)]
struct Status {
    store: String,
    transport: String,
    endpoint: String,
    now: Timestamp,
    pending: u64,
    overdue: u64,
    oldest_overdue: Option<Timestamp>,
    next_due: Option<Timestamp>,
    in_flight: u64,
    failing: u64,
    error_queue: String,
    error_queue_depth: Option<u64>,
    queues: Vec<Depth>,
    dispatcher: Dispatcher,
    alarm: Option<&'static str>,
}

pub(crate) async fn run(error_queue: &Address, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let session = Session::existing(options).await?;
    let stats = session.store().await?.stats().await?;
    let queues = match &session.transport.queues {
        Some(queues) => queues.list().await?.iter().map(Depth::from).collect(),
        None => Vec::new(),
    };
    let dispatcher = Dispatcher::of(&session).await?;
    output.print(&Status {
        store: session.url.to_string(),
        transport: session.transport.url.to_string(),
        endpoint: session.endpoint.to_string(),
        now: stats.now,
        pending: stats.pending,
        overdue: stats.overdue,
        oldest_overdue: stats.oldest_overdue,
        next_due: stats.next_due,
        in_flight: stats.in_flight,
        failing: stats.failing,
        error_queue: error_queue.to_string(),
        error_queue_depth: queues.iter().find(|q: &&Depth| q.queue == error_queue.as_str()).map(|q| q.depth),
        alarm: alarm(&stats, dispatcher.delivery),
        queues,
        dispatcher,
    })?;
    Ok(Exit::Ok)
}

/// Overdue messages and nobody who delivers them are an alarm, not a flat line.
fn alarm(stats: &Stats, delivery: Delivery) -> Option<&'static str> {
    let late = stats.oldest_overdue.map(|oldest| stats.now.duration_since(oldest));
    let silent = matches!(delivery, Delivery::Stopped | Delivery::Crashed);
    (silent && late.is_some_and(|late| late > SILENCE)).then_some("overdue_and_nobody_delivers")
}

impl Report for Status {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        field(out, "store", &self.store)?;
        if self.transport != self.store {
            field(out, "queues in", &self.transport)?;
        }
        field(out, "endpoint", &self.endpoint)?;
        field(out, "dispatcher", &self.dispatcher.to_string())?;
        for breaker in &self.dispatcher.open_breakers {
            field(out, "breaker", &format!("{breaker} has tripped"))?;
        }
        field(out, "waiting", &self.pending.to_string())?;
        let next = self.next_due.map(|due| with_relative(due, self.now));
        field(out, "next due", next.as_deref().unwrap_or("-"))?;
        let oldest = self.oldest_overdue.map(|oldest| format!(", the oldest for {}", age(oldest, self.now)));
        field(out, "overdue", &format!("{}{}", self.overdue, oldest.unwrap_or_default()))?;
        field(out, "being sent", &self.in_flight.to_string())?;
        field(out, "failing", &self.failing.to_string())?;
        let failed = match self.error_queue_depth {
            Some(0) => format!("{} is empty", self.error_queue),
            Some(depth) => format!("{depth} in {}; `postdate errors list` shows them", self.error_queue),
            None => format!("there is no queue {} yet; `postdate run` creates it", self.error_queue),
        };
        field(out, "error queue", &failed)?;
        if self.alarm.is_some() {
            writeln!(
                out,
                "{}",
                escape("ALARM: messages are overdue and nobody delivers; start `postdate run`")
            )?;
        }
        if !self.queues.is_empty() {
            writeln!(out)?;
            Table::new(&["QUEUE", "MESSAGES", "OLDEST"]).write(out, &self.queues)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overdue_while_nobody_delivers_is_an_alarm() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let stats = |late: i64| Stats {
            pending: 1,
            overdue: 1,
            in_flight: 0,
            failing: 0,
            oldest_overdue: Some(now - jiff::SignedDuration::from_secs(late)),
            next_due: None,
            now,
        };
        assert!(alarm(&stats(61), Delivery::Stopped).is_some());
        assert!(alarm(&stats(61), Delivery::Crashed).is_some());
        assert!(alarm(&stats(61), Delivery::Running).is_none());
        assert!(alarm(&stats(61), Delivery::Unknown).is_none());
        assert!(alarm(&stats(59), Delivery::Stopped).is_none());
    }
}
