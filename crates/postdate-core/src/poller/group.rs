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
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if !deadline.allows_sending() || outcomes.iter().any(engine::is_unavailable) {
            break;
        }
        outcomes.extend(match &mut transaction {
            None => engine::each(context, &*context.dispatcher, part, deadline).await,
            Some(transaction) => {
                let (dispatcher, to) = (&*context.dispatcher, &group.destination);
                let sent = engine::together(context, dispatcher, to, part, transaction.reborrow()).await;
                // What broke is undone with its probe; but the probe did get through.
                if sent.is_err() && !outcomes.is_empty() {
                    context.reached(to);
                }
                sent?
            }
        });
    }
    if admission != Admission::Nothing && outcomes.is_empty() {
        context.gates().undecided(&group.destination, engine::now());
    }
    outcomes.resize_with(group.messages.len(), || Outcome::NotTried);
    Ok(Sent { group, outcomes })
}
