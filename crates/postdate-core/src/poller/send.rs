//! Calling a dispatcher so that whatever it does, each message gets an outcome.

use std::{
    any::Any,
    error::Error,
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::FutureExt as _;

use super::{batch::Group, context::Context, now};
use crate::{
    Address, DispatchError, DispatchErrorKind, Dispatcher, Enlistment, OutgoingMessage, machine::Admission,
};

/// Nothing is sent when a claim has less than this left: another holder might send it too.
const LEASE_MARGIN: Duration = Duration::from_secs(1);

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
}

/// The dispatcher left a shared transaction in an unknown state.
#[derive(Debug)]
pub(super) struct Broken {
    pub destination: Address,
    pub error: String,
    pub panicked: bool,
}

/// When the claim ends and when to renew it, shared by all that send under it.
#[derive(Debug)]
pub(super) struct Deadline(Mutex<Term>);

#[derive(Clone, Copy, Debug)]
struct Term {
    ends: Option<Instant>,
    renewal: Option<Instant>,
}

impl Term {
    /// Renewed at half-time: one failed try leaves time for another.
    fn until(ends: Option<Instant>) -> Self {
        let renewal = ends.map(|ends| now() + ends.saturating_duration_since(now()) / 2);
        Self { ends, renewal }
    }
}

impl Deadline {
    pub(super) fn new(ends: Option<Instant>) -> Self {
        Self(Mutex::new(Term::until(ends)))
    }

    /// The claim was renewed.
    pub(super) fn extend(&self, ends: Option<Instant>) {
        *self.term() = Term::until(ends);
    }

    /// The claim was lost: nothing more may be sent.
    pub(super) fn lose(&self) {
        *self.term() = Term { ends: Some(now()), renewal: None };
    }

    /// When to renew.
    pub(super) fn renewal(&self) -> Option<Instant> {
        self.term().renewal
    }

    /// Whether enough is left of the claim to send under it.
    pub(super) fn allows_sending(&self) -> bool {
        self.term().ends.is_none_or(|ends| now() + LEASE_MARGIN < ends)
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a group: all of it, or one message to find out whether its destination is back.
///
/// # Errors
/// Within a transaction only: when the dispatcher panicked or did not answer, nobody knows what it left there.
pub(super) async fn group(
    context: &Context,
    group: Group,
    deadline: &Deadline,
    mut transaction: Option<Enlistment<'_>>,
) -> Result<Sent, Broken> {
    let admission = context.gates().admit(&group.destination, now());
    let parts: [&[OutgoingMessage]; 2] = match admission {
        Admission::All => [&group.messages[..], &[]],
        Admission::Probe => [&group.messages[..1], &group.messages[1..]],
        Admission::Nothing => [&[], &[]],
    };
    let mut outcomes = Vec::with_capacity(group.messages.len());
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if !deadline.allows_sending() || outcomes.iter().any(is_unavailable) {
            break;
        }
        outcomes.extend(match &mut transaction {
            None => each(context, part, deadline).await,
            Some(transaction) => together(context, &group.destination, part, transaction.reborrow()).await?,
        });
    }
    if admission != Admission::Nothing && outcomes.is_empty() {
        context.gates().undecided(&group.destination, now());
    }
    outcomes.resize_with(group.messages.len(), || Outcome::NotTried);
    Ok(Sent { group, outcomes })
}

/// Sends copies to the error queue: one outcome each, whatever happens.
pub(super) async fn to_error_queue(
    context: &Context,
    copies: &[OutgoingMessage],
    transaction: Option<Enlistment<'_>>,
) -> Vec<Outcome> {
    let limit = context.settings.send_time_limit;
    match call(&*context.error_dispatcher, copies, transaction, limit).await {
        Answer::Outcomes(outcomes) => outcomes,
        Answer::TimedOut(error) => all_unavailable(copies.len(), &error),
        Answer::Panicked(error) => copies.iter().map(|_| rejected(error.clone())).collect(),
    }
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
async fn together(
    context: &Context,
    destination: &Address,
    messages: &[OutgoingMessage],
    transaction: Enlistment<'_>,
) -> Result<Vec<Outcome>, Broken> {
    let limit = context.settings.send_time_limit;
    let (error, panicked) = match call(&*context.dispatcher, messages, Some(transaction), limit).await {
        Answer::Outcomes(outcomes) => return Ok(outcomes),
        Answer::Panicked(error) => (error, true),
        Answer::TimedOut(error) => (error, false),
    };
    Err(Broken { destination: destination.clone(), error, panicked })
}

/// Sends messages together; if that panics one by one, so that the panic is charged to the one that causes it.
/// The last have no outcome if a destination is away or the claim is over.
async fn each(context: &Context, messages: &[OutgoingMessage], deadline: &Deadline) -> Vec<Outcome> {
    let limit = context.settings.send_time_limit;
    match call(&*context.dispatcher, messages, None, limit).await {
        Answer::Outcomes(outcomes) => outcomes,
        Answer::TimedOut(error) => all_unavailable(messages.len(), &error),
        Answer::Panicked(error) if messages.len() == 1 => vec![rejected(error)],
        Answer::Panicked(_) => {
            let mut outcomes = Vec::with_capacity(messages.len());
            for message in messages {
                if !deadline.allows_sending() {
                    break;
                }
                match call(&*context.dispatcher, std::slice::from_ref(message), None, limit).await {
                    Answer::Outcomes(outcome) => outcomes.extend(outcome),
                    Answer::TimedOut(error) => outcomes.extend(all_unavailable(1, &error)),
                    Answer::Panicked(error) => outcomes.push(rejected(error)),
                }
                if outcomes.last().is_some_and(is_unavailable) {
                    break;
                }
            }
            outcomes
        }
    }
}

enum Answer {
    Outcomes(Vec<Outcome>),
    Panicked(String),
    TimedOut(String),
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
            let mut outcomes: Vec<Outcome> = results.into_iter().take(messages.len()).map(outcome).collect();
            let answered = outcomes.len();
            if answered < messages.len() {
                let error = format!("the dispatcher answered for {answered} of {} messages", messages.len());
                outcomes.extend(all_unavailable(messages.len() - answered, &error));
            }
            Answer::Outcomes(outcomes)
        }
        Ok(Err(panic)) => Answer::Panicked(format!("the dispatcher panicked: {}", text_of(&*panic))),
        Err(_) => Answer::TimedOut(format!("no answer within {} s", limit.as_secs_f64())),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

fn rejected(error: String) -> Outcome {
    Outcome::Failed(DispatchError::new(DispatchErrorKind::Rejected, error))
}

fn all_unavailable(count: usize, error: &str) -> Vec<Outcome> {
    let unavailable = || Outcome::Failed(DispatchError::new(DispatchErrorKind::Unavailable, error));
    std::iter::repeat_with(unavailable).take(count).collect()
}

fn is_unavailable(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(error) if error.kind() == DispatchErrorKind::Unavailable)
}
