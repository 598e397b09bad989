//! Calling a dispatcher so that whatever it does, each message gets an outcome.

use std::{any::Any, error::Error, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt as _;

use super::{batch::Group, context::Context, deadline::Deadline, now};
use crate::{
    Address, DispatchError, DispatchErrorKind, Dispatcher, Enlistment, OutgoingMessage, machine::Admission,
};

/// What became of one message.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The destination has it.
    Delivered,
    /// It was not sent.
    Failed(DispatchError),
    /// It was not tried.
    NotTried,
}

/// A group after sending.
#[derive(Debug)]
pub(super) struct Sent {
    pub group: Group,
    pub outcomes: Vec<Outcome>,
    /// A probe has opened the gate.
    pub reopened: bool,
}

/// The dispatcher left a shared transaction in an unknown state.
#[derive(Debug)]
pub(super) struct Broken {
    pub destination: Address,
    pub error: String,
    pub panicked: bool,
}

/// Sends a group that its gate admits: all of it, or one message to find out whether its destination is back.
///
/// # Errors
/// Within a transaction only: when the dispatcher panicked or did not answer, nobody knows what it left there.
pub(super) async fn group(
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
        if !deadline.allows_sending() || outcomes.iter().any(is_unavailable) {
            break;
        }
        if !outcomes.is_empty() {
            // The probe got through, whatever becomes of the rest.
            reopened = context.reached(&group.destination);
        }
        outcomes.extend(match &mut transaction {
            None => each(context, &*context.dispatcher, part, deadline).await,
            Some(transaction) => {
                let (dispatcher, to) = (&*context.dispatcher, &group.destination);
                together(context, dispatcher, to, part, transaction.reborrow()).await?
            }
        });
    }
    if admission != Admission::Nothing && outcomes.is_empty() {
        context.gates().undecided(&group.destination, now());
    }
    outcomes.resize_with(group.messages.len(), || Outcome::NotTried);
    Ok(Sent { group, outcomes, reopened })
}

/// An error and what caused it, on one line.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Sends messages within a transaction.
///
/// # Errors
/// When the dispatcher panicked or did not answer for all: nobody knows what it left in the transaction.
pub(super) async fn together(
    context: &Context,
    dispatcher: &dyn Dispatcher,
    destination: &Address,
    messages: &[OutgoingMessage],
    transaction: Enlistment<'_>,
) -> Result<Vec<Outcome>, Broken> {
    let limit = context.settings.send_time_limit;
    let (error, panicked) = match call(dispatcher, messages, Some(transaction), limit).await {
        Answer::Outcomes(outcomes) => return Ok(outcomes),
        Answer::Panicked(error) => (error, true),
        Answer::TimedOut(error) | Answer::Incomplete(_, error) => (error, false),
    };
    Err(Broken { destination: destination.clone(), error, panicked })
}

/// Sends messages together; if that panics one by one, so that the panic is charged to the one that causes it.
/// The last have no outcome if a destination is away or the claim is over.
pub(super) async fn each(
    context: &Context,
    dispatcher: &dyn Dispatcher,
    messages: &[OutgoingMessage],
    deadline: &Deadline,
) -> Vec<Outcome> {
    let limit = context.settings.send_time_limit;
    let answer = call(dispatcher, messages, None, limit).await;
    if messages.len() == 1 || !matches!(answer, Answer::Panicked(_)) {
        return answer.into_outcomes(messages.len());
    }
    let mut outcomes = Vec::with_capacity(messages.len());
    for message in messages.chunks(1) {
        if !deadline.allows_sending() || outcomes.last().is_some_and(is_unavailable) {
            break;
        }
        outcomes.extend(call(dispatcher, message, None, limit).await.into_outcomes(1));
    }
    outcomes
}

enum Answer {
    Outcomes(Vec<Outcome>),
    /// There were fewer outcomes than messages.
    Incomplete(Vec<Outcome>, String),
    Panicked(String),
    TimedOut(String),
}

impl Answer {
    fn into_outcomes(self, count: usize) -> Vec<Outcome> {
        let outcome = |kind, error: &str| Outcome::Failed(DispatchError::new(kind, error));
        let (mut outcomes, kind, error) = match self {
            Self::Outcomes(outcomes) => return outcomes,
            Self::Incomplete(outcomes, error) => (outcomes, DispatchErrorKind::Unavailable, error),
            Self::TimedOut(error) => (Vec::new(), DispatchErrorKind::Unavailable, error),
            Self::Panicked(error) => (Vec::new(), DispatchErrorKind::Rejected, error),
        };
        outcomes.resize_with(count, || outcome(kind, &error));
        outcomes
    }
}

async fn call(
    dispatcher: &dyn Dispatcher,
    messages: &[OutgoingMessage],
    transaction: Option<Enlistment<'_>>,
    limit: Duration,
) -> Answer {
    // The future is made inside, so that a dispatcher which panics before its first await is caught as well.
    let guarded = AssertUnwindSafe(async { dispatcher.dispatch(messages, transaction).await }).catch_unwind();
    match tokio::time::timeout(limit, guarded).await {
        Ok(Ok(results)) => {
            let outcome = |result| match result {
                Ok(()) => Outcome::Delivered,
                Err(error) => Outcome::Failed(error),
            };
            let outcomes: Vec<Outcome> = results.into_iter().take(messages.len()).map(outcome).collect();
            let (answered, asked) = (outcomes.len(), messages.len());
            if answered == asked {
                return Answer::Outcomes(outcomes);
            }
            Answer::Incomplete(
                outcomes,
                format!("the dispatcher answered for {answered} of {asked} messages"),
            )
        }
        Ok(Err(panic)) => Answer::Panicked(format!("the dispatcher panicked: {}", text_of(&*panic))),
        Err(_) => Answer::TimedOut(format!("no answer within {} s", limit.as_secs_f64())),
    }
}

/// What a panic said.
pub(super) fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

fn is_unavailable(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(error) if error.kind() == DispatchErrorKind::Unavailable)
}
