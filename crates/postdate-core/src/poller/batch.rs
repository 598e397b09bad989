//! A fetched batch, sorted by what is to be done with its messages.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    Address, DueMessage, MessageId, Operation, OutgoingMessage, Reason,
    engine::{Context, lateness},
    error_queue::Fault,
};

/// Messages for one destination, in order.
#[derive(Debug)]
pub(super) struct Group {
    pub destination: Address,
    pub messages: Vec<OutgoingMessage>,
    /// Due time and failures of each.
    pub details: Vec<(Timestamp, u32)>,
}

impl Group {
    /// The messages as they were fetched.
    pub(super) fn into_due(self) -> impl Iterator<Item = DueMessage> {
        let due = |(message, (due, failures))| DueMessage { message, due, failures };
        self.messages.into_iter().zip(self.details).map(due)
    }
}

/// A fetched batch, sorted.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// To be sent.
    pub groups: Vec<Group>,
    /// Not to be sent any more: to the error queue.
    pub condemned: Vec<(DueMessage, Fault)>,
    /// Not to be tried this time: their attempt counts as failed.
    pub suspects: Vec<(DueMessage, String)>,
    /// To be given back: the store does not say why they failed.
    pub unclear: Vec<MessageId>,
}

/// Sorts messages that were fetched at `now` by the store's clock.
pub(super) async fn sort(context: &Context, messages: Vec<DueMessage>, now: Timestamp) -> Sorted {
    let mut sorted = Sorted::default();
    let mut places: BTreeMap<Address, usize> = BTreeMap::new();
    for message in messages {
        let late = lateness(now, message.due);
        if let Some(reason) = context.policy.before(message.failures, late) {
            match fault_without_attempt(context, &message, reason, late, now).await {
                Some(fault) => sorted.condemned.push((message, fault)),
                None => sorted.unclear.push(message.message.id),
            }
        } else if let Some(error) = context.suspicion(&message.message.id) {
            sorted.suspects.push((message, error));
        } else {
            let destination = &message.message.destination;
            let last = sorted.groups.len().wrapping_sub(1);
            let place = match sorted.groups.get(last) {
                // Neighbours mostly go the same way.
                Some(group) if group.destination == *destination => last,
                _ => *places.entry(destination.clone()).or_insert_with(|| {
                    let destination = destination.clone();
                    sorted.groups.push(Group { destination, messages: Vec::new(), details: Vec::new() });
                    last.wrapping_add(1)
                }),
            };
            let group = &mut sorted.groups[place];
            group.details.push((message.due, message.failures));
            group.messages.push(message.message);
        }
    }
    sorted
}

/// `None` when the store does not say why the message failed: it is away, or the message is gone from it.
async fn fault_without_attempt(
    context: &Context,
    message: &DueMessage,
    reason: Reason,
    late: Duration,
    at: Timestamp,
) -> Option<Fault> {
    // Failed moves are counted too, to postpone the next one; they are no attempts.
    let attempts = message.failures.min(context.policy.number_of_retries.saturating_add(1));
    let (reason, error) = match reason {
        Reason::Expired => (reason, format!("it is {} s late, later than it may be", late.as_secs())),
        // Moving it to the error queue failed last time; the store remembers why it was to go there.
        _ => {
            let kept = last_error(context, &message.message.id).await?;
            let (reason, error) = Fault::recall(kept.as_deref().unwrap_or("all attempts failed"));
            (reason, error.to_owned())
        }
    };
    Some(Fault { reason, attempts, trace: error.clone(), error, at })
}

async fn last_error(context: &Context, id: &MessageId) -> Option<Option<String>> {
    match context.store.get(id).await {
        Ok(stored) => {
            context.store_answered(Operation::Query);
            stored.map(|stored| stored.last_error)
        }
        Err(error) => {
            tokio::time::sleep(context.store_failed(Operation::Query, &error)).await;
            None
        }
    }
}
