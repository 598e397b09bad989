//! What becomes of the messages of a batch, and carrying it out.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    batch::{Group, Sorted},
    deliver::Delivery,
    group::Sent,
};
use crate::{
    DispatchErrorKind, DueMessage, Event, Failure, MessageId, Operation, OutgoingMessage, StoreError,
    StoreErrorKind, TransactionMode,
    engine::{self, Condemned, Context, MOVES, Moved, Outcome, lateness},
    error_queue::Fault,
    machine::Verdict,
};

/// Messages, judged.
#[derive(Debug, Default)]
pub(super) struct Judged {
    delivered: Vec<(DueMessage, Duration)>,
    retries: Vec<Retry>,
    condemned: Condemned,
    moved: Condemned,
    held: Vec<MessageId>,
    gate_changed: bool,
}

#[derive(Debug)]
struct Retry {
    message: DueMessage,
    after: Duration,
    error: String,
    /// It is not a failed attempt but a failed move to the error queue.
    recovery: bool,
}

/// What was carried out, to be reported once it is permanent.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Delivered messages with their lateness, and whether they were still held when they were removed.
    delivered: Vec<(DueMessage, Duration, bool)>,
    moved: Vec<(DueMessage, Fault, bool)>,
    retries: Vec<Retry>,
    lost: bool,
}

impl Judged {
    /// Messages that are not tried at all.
    pub(super) fn untried(context: &Context, sorted: Sorted, now: Timestamp) -> Self {
        let mut judged = Self { condemned: sorted.condemned, held: sorted.unclear, ..Self::default() };
        for (message, error) in sorted.suspects {
            judged.failed(context, message, DispatchErrorKind::Rejected, error.clone(), error, now);
        }
        judged
    }

    /// Gives a group back untried.
    pub(super) fn hold(&mut self, group: Group) {
        self.held.extend(group.messages.into_iter().map(|message| message.id));
    }

    /// Judges what was sent, and opens or shuts the gate of its destination.
    pub(super) fn add(&mut self, context: &Context, sent: Sent, now: Timestamp) {
        let Sent { group, outcomes, reopened } = sent;
        self.gate_changed |= reopened;
        let destination = group.destination.clone();
        let (mut reached, mut unavailable) = (false, None);
        let mut held: usize = 0;
        for (message, outcome) in group.into_due().zip(outcomes) {
            match outcome {
                Outcome::Delivered => {
                    reached = true;
                    let late = lateness(now, message.due);
                    self.delivered.push((message, late));
                }
                Outcome::NotTried => {
                    held += 1;
                    self.held.push(message.message.id);
                }
                Outcome::Failed(error) if error.kind() == DispatchErrorKind::Unavailable => {
                    held += 1;
                    self.held.push(message.message.id);
                    unavailable = Some(error);
                }
                Outcome::Failed(error) => {
                    reached = true;
                    let trace = engine::chain(&error);
                    self.failed(context, message, error.kind(), error.to_string(), trace, now);
                }
            }
        }
        if reached {
            self.gate_changed |= context.reached(&destination);
        }
        if let Some(error) = unavailable {
            self.gate_changed = true;
            let error = engine::chain(&error);
            let retry_after = context.unavailable(&destination, &error);
            context.reporter.report(Event::Held {
                destination: &destination,
                count: held,
                retry_after,
                error: &error,
            });
        }
    }

    /// Whether the loop should ask the store anew when this batch has ended.
    pub(super) fn disturbs(&self) -> bool {
        self.gate_changed || !self.held.is_empty() || !self.retries.is_empty() || !self.moved.is_empty()
    }

    fn failed(
        &mut self,
        context: &Context,
        message: DueMessage,
        kind: DispatchErrorKind,
        error: String,
        trace: String,
        at: Timestamp,
    ) {
        match context.policy.after(message.failures, Some(kind)) {
            Verdict::Retry(after) => {
                self.retries.push(Retry { message, after, error: trace, recovery: false })
            }
            Verdict::ErrorQueue(reason) => {
                let attempts = message.failures.saturating_add(1);
                self.condemned.push((message, Fault { reason, attempts, error, trace, at }));
            }
            Verdict::Remove | Verdict::Hold => self.held.push(message.message.id),
        }
    }

    /// What is to be moved to the error queue before this is carried out.
    pub(super) fn take_condemned(&mut self) -> Option<Condemned> {
        (!self.condemned.is_empty()).then(|| std::mem::take(&mut self.condemned))
    }

    /// Judges what was moved. What could not be stays in the store and is tried again later; it is counted, so
    /// that the attempt that condemned it is not made again.
    pub(super) fn add_moved(&mut self, context: &Context, moved: Moved) {
        let (is_moved, gate_changed) = moved.judge(context);
        self.gate_changed |= gate_changed;
        for ((message, fault), is_moved) in moved.condemned.into_iter().zip(is_moved) {
            if is_moved {
                self.moved.push((message, fault));
            } else {
                self.retries.push(Retry::of_move(context, message, &fault));
            }
        }
    }

    /// Carries it out.
    pub(super) async fn settle(self, delivery: &mut Delivery) -> Settled {
        let delivered = self.delivered.iter().map(|(message, _)| message);
        let moved = self.moved.iter().map(|(message, _)| message);
        let removed: Vec<MessageId> = delivered.chain(moved).map(|m| m.message.id.clone()).collect();
        let still_held = remove(delivery, &removed).await;
        let mut lost = still_held.contains(&false);
        let mut still_held = still_held.into_iter();
        let mut held = || still_held.next().unwrap_or(false);
        let mut settled = Settled {
            delivered: self.delivered.into_iter().map(|(message, late)| (message, late, held())).collect(),
            moved: self.moved.into_iter().map(|(message, fault)| (message, fault, held())).collect(),
            retries: Vec::new(),
            lost: false,
        };
        lost |= !count_failures(delivery, &self.retries).await;
        settled.retries = self.retries;
        settled.lost = lost;
        give_back(delivery, &self.held).await;
        settled
    }
}

impl Retry {
    /// What is kept is why the message failed, not why the move did.
    fn of_move(context: &Context, message: DueMessage, fault: &Fault) -> Self {
        let failed_moves = message.failures.saturating_sub(context.policy.number_of_retries);
        let after = MOVES.after(failed_moves.saturating_add(1));
        Self { message, after, error: fault.remember(), recovery: true }
    }
}

impl Settled {
    /// Whether something was not held any more. A shared transaction must not be committed then: it would send
    /// what it does not remove.
    pub(super) fn lost(&self) -> bool {
        self.lost
    }

    /// Tells what was done.
    pub(super) fn report(&self, context: &Context) {
        let reporter = &context.reporter;
        for (message, lateness, held) in &self.delivered {
            let DueMessage { message: OutgoingMessage { id, destination, .. }, failures, .. } = message;
            let attempts = failures.saturating_add(1);
            reporter.report(Event::Dispatched { id, destination, lateness: *lateness, attempts });
            if !held {
                reporter.report(Event::PossibleDuplicate { id, destination });
            }
        }
        for (message, fault, held) in &self.moved {
            engine::report_moved(reporter, message, fault);
            if !held {
                let OutgoingMessage { id, destination, .. } = &message.message;
                reporter.report(Event::PossibleDuplicate { id, destination });
            }
        }
        for Retry { message, after, error, .. } in self.retries.iter().filter(|retry| !retry.recovery) {
            let OutgoingMessage { id, destination, .. } = &message.message;
            let attempts = message.failures.saturating_add(1);
            reporter.report(Event::AttemptFailed { id, destination, attempts, retry_after: *after, error });
        }
    }

    /// Removing was undone: what was delivered may be delivered again.
    pub(super) fn may_come_twice(&self, context: &Context) {
        let delivered = self.delivered.iter().filter(|(_, _, held)| *held).map(|(message, ..)| message);
        let moved = self.moved.iter().filter(|(_, _, held)| *held).map(|(message, ..)| message);
        for DueMessage { message: OutgoingMessage { id, destination, .. }, .. } in delivered.chain(moved) {
            context.reporter.report(Event::PossibleDuplicate { id, destination });
        }
    }
}

/// Removes messages, however long it takes: they were sent, and giving up would send them again.
async fn remove(delivery: &mut Delivery, ids: &[MessageId]) -> Vec<bool> {
    if ids.is_empty() {
        return Vec::new();
    }
    loop {
        match delivery.claim.remove(ids).await {
            Ok(held) => {
                delivery.context.store_answered(Operation::Remove);
                return held;
            }
            Err(error) if gives_up(&delivery.context, Operation::Remove, &error).await => {
                return vec![false; ids.len()];
            }
            Err(_) => {}
        }
    }
}

async fn give_back(delivery: &mut Delivery, ids: &[MessageId]) {
    if ids.is_empty() {
        return;
    }
    match delivery.claim.release(ids).await {
        Ok(()) => delivery.context.store_answered(Operation::Release),
        // They go back at the latest when the claim is dropped.
        Err(error) => {
            delivery.context.store_failed(Operation::Release, &error);
        }
    }
}

/// Counts failed attempts. Answers whether all of them were still held.
async fn count_failures(delivery: &mut Delivery, retries: &[Retry]) -> bool {
    if retries.is_empty() {
        return true;
    }
    let failure = |Retry { message, after, error, .. }: &Retry| Failure {
        id: message.message.id.clone(),
        retry_after: *after,
        error: error.chars().take(Failure::MAX_ERROR_CHARS).collect(),
    };
    let failures: Vec<Failure> = retries.iter().map(failure).collect();
    loop {
        match delivery.claim.increment_failure_count(&failures).await {
            Ok(held) => {
                delivery.context.store_answered(Operation::IncrementFailureCount);
                return !held.contains(&false);
            }
            Err(error) => {
                delivery.context.recovery_failed(&failures[0].id, &error.to_string());
                if gives_up(&delivery.context, Operation::IncrementFailureCount, &error).await {
                    return false;
                }
            }
        }
    }
}

/// Pauses after a failed call, unless the claim is lost: that is an answer. Then there is no point in trying again,
/// and neither is there in a transaction that has failed.
async fn gives_up(context: &Context, operation: Operation, error: &StoreError) -> bool {
    if error.kind() == StoreErrorKind::ClaimLost {
        context.store_answered(operation);
        return true;
    }
    tokio::time::sleep(context.store_failed(operation, error)).await;
    context.mode == TransactionMode::TransactionScope
}
