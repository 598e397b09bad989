//! `verify`: a checklist of what must be true for the store to be used.

use std::io::{self, Write};

use jiff::{SignedDuration, Timestamp, civil::date, tz::TimeZone};
use postdate::{Backend, DelayedMessageStore, Filter, ListQuery, StoreError};
use serde::Serialize;

use crate::{
    cli::Options,
    commands::queue::PAGE,
    exit::{Exit, Failure},
    output::{Output, Report, escape::escape, time::rough},
    session::Session,
};

/// A difference between the store's clock and ours that needs no explanation.
const SKEW: SignedDuration = SignedDuration::from_secs(2);

#[derive(Serialize)]
struct Check {
    check: &'static str,
    result: Grade,
    detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    Ok,
    Warning,
    Failed,
}

/// Checks and says so, one by one.
struct Checklist<'a> {
    output: &'a Output,
    worst: Exit,
}

pub(crate) async fn run(options: &Options, output: &Output) -> Result<Exit, Failure> {
    let mut checklist = Checklist { output, worst: Exit::Ok };
    let Some(session) = checklist
        .tried("connect", Session::existing(options).await, |session| format!("{} answers", session.url))?
    else {
        return Ok(checklist.worst);
    };
    checklist.say("durability", durability(&session))?;
    checklist.settings(session.backend.as_ref()).await?;
    if session.transport.url != session.url {
        checklist.settings(session.transport.backend.as_ref()).await?;
    }
    if let Some(store) = checklist
        .tried("schema", session.store().await, |_| format!("set up for the endpoint {}", session.endpoint))?
    {
        checklist.store(store.as_ref()).await?;
    }
    if let Some(queues) = &session.transport.queues {
        let list = queues.list().await.map_err(Failure::from);
        checklist.tried("queues", list, |queues| format!("{} can be read", queues.len()))?;
    }
    Ok(checklist.worst)
}

impl Checklist<'_> {
    /// What weakens the store's promises. Where nothing does, there is nothing to say: not every store can tell.
    async fn settings(&mut self, backend: &dyn Backend) -> Result<(), Failure> {
        match backend.warnings().await {
            Ok(warnings) => {
                warnings.into_iter().try_for_each(|warning| self.say("settings", (Grade::Warning, warning)))
            }
            Err(error) => {
                self.tried("settings", Err::<(), _>(error.into()), |()| String::new())?;
                Ok(())
            }
        }
    }

    async fn store(&mut self, store: &dyn DelayedMessageStore) -> Result<(), Failure> {
        let stats = store.stats().await.map_err(Failure::from);
        let stats = self.tried("counts", stats, |stats| {
            format!("{} waiting, {} overdue, {} failing", stats.pending, stats.overdue, stats.failing)
        })?;
        if let Some(stats) = stats {
            self.say("clock", clock(stats.now, Timestamp::now()))?;
        }
        let first = first_messages(store).await.map_err(Failure::from);
        self.tried("messages", first, |count| format!("the next {count} can be read"))?;
        Ok(())
    }

    /// Says how something went that either works or fails.
    fn tried<T>(
        &mut self,
        check: &'static str,
        outcome: Result<T, Failure>,
        detail: impl FnOnce(&T) -> String,
    ) -> Result<Option<T>, Failure> {
        match outcome {
            Ok(good) => {
                self.say(check, (Grade::Ok, detail(&good)))?;
                Ok(Some(good))
            }
            Err(Failure::Said(exit, message)) => {
                self.worst = self.worst.max(exit);
                self.say(check, (Grade::Failed, message))?;
                Ok(None)
            }
            Err(gone @ Failure::ReaderGone) => Err(gone),
        }
    }

    fn say(&mut self, check: &'static str, (result, detail): (Grade, String)) -> Result<(), Failure> {
        if result == Grade::Failed {
            self.worst = self.worst.max(Exit::Failure);
        }
        self.output.print(&Check { check, result, detail })
    }
}

/// Reads some messages with their content.
async fn first_messages(store: &dyn DelayedMessageStore) -> Result<usize, StoreError> {
    let listing = store.list(&ListQuery::new(Filter::default(), PAGE)).await?;
    for summary in &listing.messages {
        store.get(&summary.id).await?;
    }
    Ok(listing.messages.len())
}

fn durability(session: &Session) -> (Grade, String) {
    if session.backend.capabilities().durable {
        (Grade::Ok, "what is stored survives a crash".to_owned())
    } else {
        (
            Grade::Warning,
            "this store forgets everything when its process ends; use sqlite: to keep it".to_owned(),
        )
    }
}

fn clock(store: Timestamp, here: Timestamp) -> (Grade, String) {
    // No message was ever postdated before this program was written.
    let sane =
        date(2025, 1, 1).to_zoned_datetime(TimeZone::UTC).is_ok_and(|earliest| store > earliest.timestamp());
    let skew = here.duration_since(store);
    if !sane {
        (Grade::Failed, format!("the store's clock shows {store}; set it right, or messages are late"))
    } else if skew.abs() > SKEW {
        let side = if skew.is_negative() { "ahead of" } else { "behind" };
        (
            Grade::Warning,
            format!("the store's clock is {} {side} this machine's; it alone decides", rough(skew)),
        )
    } else {
        (Grade::Ok, format!("the store's clock shows {store}"))
    }
}

impl Report for Check {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        let mark = match self.result {
            Grade::Ok => "ok",
            Grade::Warning => "warning",
            Grade::Failed => "FAILED",
        };
        writeln!(out, "{mark:<8} {:<11} {}", self.check, escape(&self.detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_noticed() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let here = at("2026-07-01T12:00:00Z");
        for (store, grade, words) in [
            ("2026-07-01T12:00:01Z", Grade::Ok, "shows 2026"),
            ("2026-07-01T12:01:00Z", Grade::Warning, "1m ahead of"),
            ("2026-07-01T11:00:00Z", Grade::Warning, "1h behind"),
            ("1970-01-01T00:00:00Z", Grade::Failed, "set it right"),
        ] {
            let (result, detail) = clock(at(store), here);
            assert_eq!(result, grade, "{store}");
            assert!(detail.contains(words), "{detail}");
        }
    }
}
