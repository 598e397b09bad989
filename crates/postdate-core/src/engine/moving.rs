//! Moving to the error queue: sending a copy, through a gate as to any destination.

use std::time::Duration;

use super::{
    Context, Deadline, now,
    send::{self, Broken, Outcome},
};
use crate::{
    Backoff, DispatchErrorKind, DueMessage, Enlistment, Event, OutgoingMessage,
    error_queue::{self, Fault},
    machine::Admission,
    observer::Reporter,
};

/// The wait after a failed move.
pub(crate) const MOVES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));

/// Messages for which there is no hope.
pub(crate) type Condemned = Vec<(DueMessage, Fault)>;

/// Condemned messages after the try to move them.
#[derive(Debug)]
pub(crate) struct Moved {
    pub condemned: Condemned,
    pub outcomes: Vec<Outcome>,
}

impl Moved {
    /// None of them was tried.
    pub(crate) fn untried(condemned: Condemned) -> Self {
        let outcomes = condemned.iter().map(|_| Outcome::NotTried).collect();
        Self { condemned, outcomes }
    }

    /// Takes note of what became of the move, and opens or shuts the gate of the error queue. Answers for each
    /// message whether it was moved, and whether the gate changed.
    pub(crate) fn judge(&self, context: &Context) -> (Vec<bool>, bool) {
        let (mut reached, mut unavailable, mut gate_changed) = (false, None, false);
        let mut moved = Vec::with_capacity(self.condemned.len());
        for ((message, _), outcome) in self.condemned.iter().zip(&self.outcomes) {
            moved.push(matches!(outcome, Outcome::Delivered));
            match outcome {
                Outcome::Delivered => reached = true,
                Outcome::NotTried => {}
                Outcome::Failed(error) => {
                    let text = send::chain(error);
                    context.recovery_failed(&message.message.id, &text);
                    match error.kind() {
                        DispatchErrorKind::Unavailable => unavailable = Some(text),
                        _ => reached = true,
                    }
                }
            }
        }
        if reached {
            gate_changed |= context.reached(&context.error_queue);
        }
        if let Some(error) = unavailable {
            gate_changed = true;
            context.unavailable(&context.error_queue, &error);
        }
        (moved, gate_changed)
    }
}

/// Tells that a message was moved.
pub(crate) fn report_moved(reporter: &Reporter, message: &DueMessage, fault: &Fault) {
    let OutgoingMessage { id, destination, .. } = &message.message;
    let Fault { attempts, reason, error, .. } = fault;
    let (attempts, reason) = (*attempts, *reason);
    reporter.report(Event::MovedToErrorQueue { id, destination, attempts, reason, error });
}

/// Whether the gate of the error queue lets anything pass: a probe is as many as there are.
pub(crate) fn is_admitted(context: &Context) -> bool {
    context.gates().admit(&context.error_queue, now()) != Admission::Nothing
}

/// Sends copies to the error queue, having been admitted, unless too little is left of the claim: then the
/// messages are somebody else's soon, and may have been cancelled.
pub(crate) async fn to_error_queue(context: &Context, condemned: Condemned, deadline: &Deadline) -> Moved {
    if !deadline.allows_sending() {
        context.gates().undecided(&context.error_queue, now());
        return Moved::untried(condemned);
    }
    let copies = copies(context, &condemned);
    let mut outcomes = send::each(context, &*context.error_dispatcher, &copies, deadline).await;
    outcomes.resize_with(condemned.len(), || Outcome::NotTried);
    Moved { condemned, outcomes }
}

/// The same within a transaction.
///
/// # Errors
/// When the dispatcher panicked or did not answer for all: nobody knows what it left in the transaction.
pub(crate) async fn in_transaction(
    context: &Context,
    condemned: Condemned,
    deadline: &Deadline,
    transaction: Option<Enlistment<'_>>,
) -> Result<Moved, Broken> {
    let Some(transaction) = transaction.filter(|_| deadline.allows_sending()) else {
        context.gates().undecided(&context.error_queue, now());
        return Ok(Moved::untried(condemned));
    };
    let copies = copies(context, &condemned);
    let (dispatcher, queue) = (&*context.error_dispatcher, &context.error_queue);
    let outcomes = send::together(context, dispatcher, queue, &copies, transaction).await?;
    Ok(Moved { condemned, outcomes })
}

fn copies(context: &Context, condemned: &Condemned) -> Vec<OutgoingMessage> {
    let copy = |(message, fault): &(DueMessage, Fault)| {
        error_queue::copy(message, fault, &context.endpoint, &context.error_queue)
    };
    condemned.iter().map(copy).collect()
}
