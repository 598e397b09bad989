//! Histories of delayed messages, and the judge that says which promises they break.
//!
//! A history is a list of [`Event`]s: what clients asked for and were told, what stores and destinations did, what
//! befell processes. A simulation gives them to a [`Judge`] one by one as they happen; processes of a real run
//! write them to files, a JSON object a line, that are [merged](file::merge) and [judged](judge()) afterwards.
//!
//! The judge knows nothing of the code that it judges. It keeps its own record of every message, and *ghost
//! leases*: who holds what by the rules, whatever the store believes.

mod archive;
mod content;
mod event;
pub mod file;
mod judge;
mod recorded;
mod rules;
mod verdict;
mod words;

pub use archive::Archive;
pub use content::content;
pub use event::{
    Cancellation, Event, Failure, Fetched, Outcome, Queued, Refusal, Rescheduling, Settled, SettledCopy,
    Wanted, Way, What,
};
pub use judge::Judge;
pub use recorded::{RecordedBackend, RecordedDispatcher};
pub use rules::{Guarantee, Knowledge, Rules};
pub use verdict::{Counts, Verdict, Violation};

use jiff::{SignedDuration, Timestamp};

/// Judges a whole history, by the rules that its first event tells.
///
/// # Errors
/// When it begins without rules.
pub fn judge(history: &[Event]) -> anyhow::Result<Verdict> {
    let rules = history.iter().find_map(|event| match &event.what {
        What::Began { rules } => Some(rules.clone()),
        _ => None,
    });
    let mut judge = Judge::new(rules.ok_or_else(|| anyhow::anyhow!("the history does not tell its rules"))?);
    history.iter().for_each(|event| judge.take(event));
    Ok(judge.verdict())
}

/// `by` after `at`, or the end of time.
fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
