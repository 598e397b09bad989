//! Sending what goes one way.

use super::batch::Group;
use crate::{
    Enlistment, OutgoingMessage,
    engine::{self, Broken, Context, Deadline, Outcome},
    machine::Admission,
};

/// A group after sending.
#[derive(Debug)]
pub(super) struct Sent {
    pub group: Group,
    pub outcomes: Vec<Outcome>,
    /// A probe has opened the gate.
    pub reopened: bool,
}

/// Sends a group that its gate admits: all of it, or one message to find out whether its destination is back.
///
/// # Errors
/// Within a transaction only: when the dispatcher panicked or did not answer, nobody knows what it left there.
pub(super) async fn send(
    context: &Context,
    group: Group,
    admission: Admission,
    deadline: &Deadline,
    mut transaction: Option<Enlistment<'_>>,
) -> Result<Sent, Broken> {
    let parts: [&[OutgoingMessage]; 2] = match admission {
        Admission::All => [&group.messages[..], &[]],
        Admission::Probe => [&group.messages[..1], &group.messages[1..]],
        Admission::Nothing => [&[], &[]],
    };
    let mut outcomes = Vec::with_capacity(group.messages.len());
    let mut reopened = false;
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if !deadline.allows_sending() || outcomes.iter().any(engine::is_unavailable) {
            break;
        }
        if !outcomes.is_empty() {
            // The probe got through, whatever becomes of the rest.
            reopened = context.reached(&group.destination);
        }
        outcomes.extend(match &mut transaction {
            None => engine::each(context, &*context.dispatcher, part, deadline).await,
            Some(transaction) => {
                let (dispatcher, to) = (&*context.dispatcher, &group.destination);
                engine::together(context, dispatcher, to, part, transaction.reborrow()).await?
            }
        });
    }
    if admission != Admission::Nothing && outcomes.is_empty() {
        context.gates().undecided(&group.destination, engine::now());
    }
    outcomes.resize_with(group.messages.len(), || Outcome::NotTried);
    Ok(Sent { group, outcomes, reopened })
}
