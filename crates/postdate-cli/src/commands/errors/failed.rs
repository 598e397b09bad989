//! A message in the error queue, as it is shown.

use std::io::{self, Write};

use jiff::Timestamp;
use postdate::{
    Address, OutgoingMessage, QueuedMessage,
    error_queue::{FailedMessage, restore},
};
use serde::Serialize;

use crate::output::{
    Report,
    human::{Row, content, field},
    json::Content,
    time::{relative, with_relative},
};

/// What is known of a failure. What postdate did not put there itself has only its id and its time of arrival.
#[derive(Debug, Serialize)]
pub(super) struct Failed {
    id: String,
    enqueued: Timestamp,
    body_bytes: u64,
    /// Whether it can be retried.
    restorable: bool,
    queue: Option<String>,
    due: Option<Timestamp>,
    failed_at: Option<Timestamp>,
    attempts: Option<u32>,
    reason: Option<String>,
    error: Option<String>,
}

/// The same with the content: the original's, where it can be restored.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    failed: Failed,
    #[serde(flatten)]
    content: Content,
    #[serde(skip)]
    message: OutgoingMessage,
}

impl Failed {
    /// Whether it was on its way to `queue`.
    pub(super) fn was_for(&self, queue: &Address) -> bool {
        self.queue.as_deref() == Some(queue.as_str())
    }

    fn new(queued: &QueuedMessage, restored: Option<FailedMessage>) -> Self {
        let (id, enqueued) = (queued.message.id.to_string(), queued.enqueued);
        let body_bytes = queued.message.body.len() as u64;
        match restored {
            Some(failed) => Self {
                id,
                enqueued,
                body_bytes,
                restorable: true,
                queue: Some(failed.original.destination.to_string()),
                due: Some(failed.due),
                failed_at: Some(failed.time_of_failure),
                attempts: Some(failed.attempts),
                reason: Some(failed.reason),
                error: Some(failed.error),
            },
            None => Self {
                id,
                enqueued,
                body_bytes,
                restorable: false,
                queue: None,
                due: None,
                failed_at: None,
                attempts: None,
                reason: None,
                error: None,
            },
        }
    }
}

impl From<&QueuedMessage> for Failed {
    fn from(queued: &QueuedMessage) -> Self {
        Self::new(queued, restore(&queued.message).ok())
    }
}

impl From<&QueuedMessage> for Shown {
    fn from(queued: &QueuedMessage) -> Self {
        let restored = restore(&queued.message).ok();
        let message = restored.as_ref().map_or(&queued.message, |failed| &failed.original).clone();
        Self { failed: Failed::new(queued, restored), content: Content::of(&message), message }
    }
}

impl Row for Failed {
    fn cells(&self) -> Vec<String> {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let at = relative(self.failed_at.unwrap_or(self.enqueued), Timestamp::now());
        vec![self.id.clone(), or_dash(&self.queue), at, or_dash(&self.reason), or_dash(&self.error)]
    }
}

impl Report for Shown {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        let (failed, now) = (&self.failed, Timestamp::now());
        field(out, "id", &failed.id)?;
        let facts = [
            ("queue", failed.queue.clone()),
            ("due", failed.due.map(|due| with_relative(due, now))),
            ("failed", failed.failed_at.map(|at| with_relative(at, now))),
            ("attempts", failed.attempts.map(|attempts| attempts.to_string())),
            ("reason", failed.reason.clone()),
            ("error", failed.error.clone()),
        ];
        for (name, fact) in facts {
            if let Some(fact) = fact {
                field(out, name, &fact)?;
            }
        }
        if !failed.restorable {
            field(out, "note", "postdate did not put it here and cannot retry it")?;
        }
        content(out, &self.message.headers, &self.message.body)
    }
}
