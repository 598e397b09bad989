//! `list`: the messages that wait for their time.

use std::num::NonZeroUsize;

use jiff::Timestamp;
use postdate::{ListQuery, MessageState, ScheduledSummary};
use serde::Serialize;

use crate::{
    cli::{ListArgs, Options},
    exit::{Exit, Failure},
    output::{
        Output,
        human::{Row, Table},
        json,
        time::{local, relative},
    },
    session::Session,
};

/// So many are asked for at once.
const PAGE: usize = 500;

/// A waiting message without its content.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) id: String,
    pub(crate) queue: String,
    pub(crate) due: Timestamp,
    pub(crate) next_attempt: Timestamp,
    #[serde(serialize_with = "json::state")]
    pub(crate) state: MessageState,
    pub(crate) failures: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) body_bytes: u64,
}

pub(crate) async fn run(args: &ListArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let session = Session::existing(options).await?;
    let store = session.store().await?;
    let mut table = Table::new(&["ID", "QUEUE", "DUE", "", "STATE"]);
    let mut query = ListQuery::new(args.filter(), NonZeroUsize::MIN);
    let mut left = args.paging.limit();
    while let Some(limit) = NonZeroUsize::new(left.min(PAGE)) {
        query.limit = limit;
        let page = store.list(&query).await?;
        left = left.saturating_sub(page.messages.len());
        let lines: Vec<Line> = page.messages.into_iter().map(Line::from).collect();
        output.print_rows(&mut table, &lines)?;
        query.after = page.next;
        if query.after.is_none() {
            return Ok(Exit::Ok);
        }
    }
    output.note("there are more; --limit N or --all shows them");
    Ok(Exit::Ok)
}

/// How a waiting message stands, in words.
pub(crate) fn standing(
    state: MessageState,
    failures: u32,
    next_attempt: Timestamp,
    now: Timestamp,
) -> String {
    match state {
        MessageState::InFlight => "being sent".to_owned(),
        _ if failures > 0 => format!("failed {failures}x, next {}", relative(next_attempt, now)),
        _ if next_attempt <= now => "overdue".to_owned(),
        _ => "waiting".to_owned(),
    }
}

impl From<ScheduledSummary> for Line {
    fn from(summary: ScheduledSummary) -> Self {
        Self {
            id: summary.id.to_string(),
            queue: summary.destination.to_string(),
            due: summary.due,
            next_attempt: summary.next_attempt,
            state: summary.state,
            failures: summary.failures,
            last_error: summary.last_error,
            body_bytes: summary.body_bytes,
        }
    }
}

impl Row for Line {
    fn cells(&self) -> Vec<String> {
        let now = Timestamp::now();
        let mut state = standing(self.state, self.failures, self.next_attempt, now);
        if let Some(error) = &self.last_error {
            state = format!("{state}: {error}");
        }
        vec![self.id.clone(), self.queue.clone(), local(self.due), relative(self.due, now), state]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_message_stands_is_said_in_words() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let later = Timestamp::from_second(1_800_000_005).unwrap();
        for (state, failures, next, words) in [
            (MessageState::Pending, 0, later, "waiting"),
            (MessageState::Pending, 0, now, "overdue"),
            (MessageState::Pending, 2, later, "failed 2x, next in 5s"),
            (MessageState::InFlight, 2, now, "being sent"),
        ] {
            assert_eq!(standing(state, failures, next, now), words);
        }
    }
}
