//! Moving to the error queue: sending a copy, through a gate as to any destination.

use super::{
    context::Context,
    deadline::Deadline,
    now,
    send::{self, Broken, Outcome},
};
use crate::{
    DueMessage, Enlistment, OutgoingMessage,
    error_queue::{self, Fault},
    machine::Admission,
};

/// Messages for which there is no hope.
pub(super) type Condemned = Vec<(DueMessage, Fault)>;

/// Condemned messages after the try to move them.
#[derive(Debug)]
pub(super) struct Moved {
    pub condemned: Condemned,
    pub outcomes: Vec<Outcome>,
}

impl Moved {
    /// None of them was tried.
    pub(super) fn untried(condemned: Condemned) -> Self {
        let outcomes = condemned.iter().map(|_| Outcome::NotTried).collect();
        Self { condemned, outcomes }
    }
}

/// Whether the gate of the error queue lets anything pass: a probe is as many as there are.
pub(super) fn is_admitted(context: &Context) -> bool {
    context.gates().admit(&context.error_queue, now()) != Admission::Nothing
}

/// Sends copies to the error queue, having been admitted, unless too little is left of the claim: then the
/// messages are somebody else's soon, and may have been cancelled.
pub(super) async fn to_error_queue(context: &Context, condemned: Condemned, deadline: &Deadline) -> Moved {
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
pub(super) async fn in_transaction(
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
