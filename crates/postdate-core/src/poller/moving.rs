//! Moving to the error queue: sending a copy, through a gate as to any destination.

use super::{
    context::Context,
    now,
    send::{self, Deadline, Outcome},
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

/// Sends copies to the error queue, unless its gate is shut or too little is left of the claim: then the messages
/// are somebody else's soon, and may have been cancelled.
pub(super) async fn to_error_queue(
    context: &Context,
    condemned: Condemned,
    deadline: &Deadline,
    transaction: Option<Enlistment<'_>>,
) -> Moved {
    let admission = context.gates().admit(&context.error_queue, now());
    let mut outcomes = Vec::new();
    if admission != Admission::Nothing && deadline.allows_sending() {
        let copy = |(message, fault): &(DueMessage, Fault)| {
            error_queue::copy(message, fault, &context.endpoint, &context.error_queue)
        };
        let copies: Vec<OutgoingMessage> = condemned.iter().map(copy).collect();
        outcomes = send::to_error_queue(context, &copies, transaction).await;
    } else if admission != Admission::Nothing {
        context.gates().undecided(&context.error_queue, now());
    }
    outcomes.resize_with(condemned.len(), || Outcome::NotTried);
    Moved { condemned, outcomes }
}
