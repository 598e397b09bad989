//! `errors retry`: back to the store under the same id, due now.
//!
//! Stored first, then taken from the error queue: after a crash between the two the message is retried again,
//! and storing it twice changes nothing.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use postdate::{
    Address, DelayedMessage, DelayedMessageStore, Due, MessageId, QueuedMessage, Reason, ReceiveClaim,
    ReceivedBatch, Receiver, Selection, StoreErrorKind,
    error_queue::{FailedMessage, restore},
};
use serde::Serialize;

use super::{Failed, Walk};
use crate::{
    cli::RetryArgs,
    commands::{queue::PAGE, send},
    exit::{Exit, Failure},
    output::{Format, Output, Report, escape::escape, progress::Progress},
    session::Session,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Retried,
    NotFound,
    Conflict,
    NotRestorable,
}

#[derive(Serialize)]
struct Answer {
    id: String,
    outcome: Outcome,
    queue: Option<String>,
}

#[derive(Serialize)]
struct Total {
    retried: u64,
}

struct Retry<'a> {
    session: &'a Session,
    store: &'a dyn DelayedMessageStore,
    receiver: &'a dyn Receiver,
    output: &'a Output,
    progress: Progress,
    /// Where each success has a line of its own, or is only counted.
    each: bool,
    retried: u64,
    /// The destinations that were looked at.
    seen: BTreeSet<Address>,
    worst: Exit,
}

pub(super) async fn run(
    session: &Session,
    error_queue: &Address,
    args: &RetryArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let queues = session.transport.queues()?;
    let (store, receiver) = (session.store().await?, queues.receiver(error_queue).await?);
    let depth = queues.list().await?.iter().find(|queue| queue.name == *error_queue).map_or(0, |q| q.depth);
    let total = if args.all { depth } else { args.ids.len() as u64 };
    let mut retry = Retry {
        session,
        store: store.as_ref(),
        receiver: receiver.as_ref(),
        output,
        progress: Progress::new(output, "retried", total),
        each: !args.all || output.format() == Format::Json,
        retried: 0,
        seen: BTreeSet::new(),
        worst: Exit::Ok,
    };
    for ids in args.ids.chunks(PAGE.get()) {
        retry.these(ids.iter().cloned().collect()).await?;
    }
    if args.all {
        retry.all(Walk::new(queues.as_ref(), error_queue), args.queue.as_ref(), depth).await?;
    }
    store.flush().await;
    if !retry.each {
        output.print(&Total { retried: retry.retried })?;
    }
    Ok(retry.worst)
}

impl Retry<'_> {
    /// As many as are there now: what fails again meanwhile arrives behind the end and is not tried for ever. The clock
    /// of the queues says nothing of that, nor does the store's, which may be another one.
    async fn all(
        &mut self,
        mut walk: Walk<'_>,
        queue: Option<&Address>,
        mut left: u64,
    ) -> Result<(), Failure> {
        while left > 0
            && let Some(page) = walk.next().await?
        {
            let ids: BTreeSet<MessageId> = page
                .iter()
                .take(usize::try_from(left).unwrap_or(usize::MAX))
                .filter(|queued| queue.is_none_or(|queue| Failed::from(*queued).was_for(queue)))
                .map(|queued| queued.message.id.clone())
                .collect();
            self.these(ids).await?;
            left = left.saturating_sub(page.len() as u64);
        }
        Ok(())
    }

    /// In several goes where they are too large to be received at once.
    async fn these(&mut self, mut ids: BTreeSet<MessageId>) -> Result<(), Failure> {
        while !ids.is_empty() {
            let selection = Selection::Ids(ids.iter().cloned().collect());
            let ReceivedBatch { messages, mut claim } = self.receiver.try_receive(&selection).await?;
            if messages.is_empty() {
                break;
            }
            let outcome = self.settle(&messages, claim.as_mut()).await;
            // Dropping the claim would give the rest back, too, but nobody waits for that when the program ends.
            let positions: Vec<u64> = messages.iter().map(|queued| queued.position).collect();
            claim.abandon(&positions).await?;
            outcome?;
            self.progress.advance(messages.len());
            messages.iter().for_each(|queued| _ = ids.remove(&queued.message.id));
        }
        ids.iter().try_for_each(|id| self.answer(id, Outcome::NotFound, None))
    }

    async fn settle(
        &mut self,
        messages: &[QueuedMessage],
        claim: &mut dyn ReceiveClaim,
    ) -> Result<(), Failure> {
        let mut restored = Vec::new();
        for queued in messages {
            match restore(&queued.message) {
                Ok(failed) => restored.push((queued.position, failed)),
                Err(error) => {
                    self.output.note(&error.to_string());
                    self.answer(&queued.message.id, Outcome::NotRestorable, None)?;
                }
            }
        }
        self.store_and_complete(restored, claim).await
    }

    async fn store_and_complete(
        &mut self,
        restored: Vec<(u64, FailedMessage)>,
        claim: &mut dyn ReceiveClaim,
    ) -> Result<(), Failure> {
        let messages: Vec<_> = restored.iter().map(|(_, failed)| due_again(failed)).collect();
        match self.store.store(&messages).await {
            Ok(_) => self.complete(&restored, claim).await,
            // One by one, to find out which is in the way.
            Err(error) if error.kind() == StoreErrorKind::Conflict => {
                for one in restored.iter().zip(&messages) {
                    let ((_, failed), message) = one;
                    match self.store.store(std::slice::from_ref(message)).await {
                        Ok(_) => self.complete(std::slice::from_ref(one.0), claim).await?,
                        Err(error) if error.kind() == StoreErrorKind::Conflict => {
                            let original = &failed.original;
                            self.answer(&original.id, Outcome::Conflict, Some(&original.destination))?;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn complete(
        &mut self,
        stored: &[(u64, FailedMessage)],
        claim: &mut dyn ReceiveClaim,
    ) -> Result<(), Failure> {
        let positions: Vec<u64> = stored.iter().map(|(position, _)| *position).collect();
        let held = claim.complete(&positions).await?;
        for ((_, failed), held) in stored.iter().zip(held) {
            let original = &failed.original;
            if !held {
                self.output
                    .note(&format!("{}: somebody else took it, too; it may be delivered twice", original.id));
            }
            self.answer(&original.id, Outcome::Retried, Some(&original.destination))?;
            if self.seen.insert(original.destination.clone())
                && self.session.transport.has_queue(&original.destination).await? == Some(false)
            {
                self.output.note(&send::missing(&original.destination));
            }
        }
        Ok(())
    }

    fn answer(&mut self, id: &MessageId, outcome: Outcome, queue: Option<&Address>) -> Result<(), Failure> {
        self.worst = self.worst.max(match outcome {
            Outcome::Retried => Exit::Ok,
            Outcome::NotFound => Exit::NotFound,
            Outcome::Conflict => Exit::Conflict,
            Outcome::NotRestorable => Exit::Failure,
        });
        self.retried += u64::from(outcome == Outcome::Retried);
        if outcome == Outcome::Retried && !self.each {
            return Ok(());
        }
        let answer = Answer { id: id.to_string(), outcome, queue: queue.map(Address::to_string) };
        self.progress.aside(|| self.output.print(&answer))
    }
}

/// At once, but for a message that never got into the store: its time may be yet to come.
fn due_again(failed: &FailedMessage) -> DelayedMessage {
    let due = if failed.reason == Reason::NotStorable.as_str() { Due::At(failed.due) } else { Due::NOW };
    DelayedMessage { message: failed.original.clone(), due }
}

impl Report for Answer {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        let words = match (self.outcome, &self.queue) {
            (Outcome::Retried, Some(queue)) => format!("back on its way to {queue}"),
            (Outcome::Retried, None) => "back on its way".to_owned(),
            (Outcome::NotFound, _) => "not found, or held by somebody else".to_owned(),
            (Outcome::Conflict, _) => {
                "another message with this id waits already; cancel one of them".to_owned()
            }
            (Outcome::NotRestorable, _) => "postdate did not put it here and cannot retry it".to_owned(),
        };
        writeln!(out, "{}  {}", escape(&self.id), escape(&words))
    }
}

impl Report for Total {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.retried {
            1 => writeln!(out, "1 message is back on its way"),
            retried => writeln!(out, "{retried} messages are back on their way"),
        }
    }
}
