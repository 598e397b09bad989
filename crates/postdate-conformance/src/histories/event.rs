//! A call of a store together with what it answered.

use std::fmt;

use jiff::Timestamp;
use postdate_core::{
    Address, Cancellation, DelayedMessage, Due, DueMessage, Failure, Filter, MessageId, NextDue,
    Rescheduling, ScheduledMessage, ScheduledSummary, Stats, StoreError, StoreErrorKind,
};

use super::tally::Tally;

/// Which claim, in the order of fetching.
pub(super) type ClaimNumber = u64;

#[derive(Clone, Debug)]
pub(super) enum Event {
    Stored {
        messages: Vec<DelayedMessage>,
        answer: Answer<Vec<Timestamp>>,
    },
    Fetched {
        claim: ClaimNumber,
        handle: u64,
        limit: usize,
        except: Vec<Address>,
        answer: Answer<Batch>,
    },
    Removed {
        claim: ClaimNumber,
        ids: Vec<MessageId>,
        answer: Answer<Vec<bool>>,
    },
    Failed {
        claim: ClaimNumber,
        failures: Vec<Failure>,
        answer: Answer<Vec<bool>>,
    },
    Released {
        claim: ClaimNumber,
        ids: Vec<MessageId>,
        answer: Answer<()>,
    },
    Renewed {
        claim: ClaimNumber,
        answer: Answer<()>,
    },
    Committed {
        claim: ClaimNumber,
        answer: Answer<()>,
    },
    Dropped {
        claim: ClaimNumber,
    },
    Cancelled {
        ids: Vec<MessageId>,
        answer: Answer<Vec<Cancellation>>,
    },
    Rescheduled {
        id: MessageId,
        due: Due,
        answer: Answer<Rescheduling>,
    },
    Looked {
        id: MessageId,
        answer: Answer<Option<ScheduledMessage>>,
    },
    Listed {
        filter: Filter,
        answer: Answer<Vec<ScheduledSummary>>,
    },
    Counted {
        answer: Answer<Stats>,
    },
    NextDue {
        except: Vec<Address>,
        answer: Answer<NextDue>,
    },
    /// All leases are over but that of the claim that was renewed.
    LeasesEnded {
        kept: Option<ClaimNumber>,
    },
    /// The last store of this handle was closed.
    Closed {
        handle: u64,
    },
}

/// What was fetched, without the claim.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) messages: Vec<DueMessage>,
    pub(super) now: Timestamp,
    pub(super) contended: bool,
}

pub(super) type Answer<T> = Result<T, Refusal>;

/// An error that can be compared and kept.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) kind: StoreErrorKind,
    text: String,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self { kind: error.kind(), text: error.to_string() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused as {:?}: {}", self.kind, self.text)
    }
}

impl std::error::Error for Refusal {}

impl Event {
    /// What ends the claim, if this is its commit.
    pub(super) fn gives_back(&self) -> Option<Self> {
        match self {
            Self::Committed { claim, .. } => Some(Self::Dropped { claim: *claim }),
            _ => None,
        }
    }

    /// The claim that this took, if it holds something.
    pub(super) fn takes(&self) -> Option<ClaimNumber> {
        match self {
            Self::Fetched { claim, answer: Ok(batch), .. } if !batch.messages.is_empty() => Some(*claim),
            _ => None,
        }
    }

    /// Whether this may give a message another time while others look for what is due.
    pub(super) fn postpones(&self) -> bool {
        matches!(
            self,
            Self::Rescheduled { .. }
                | Self::Failed { .. }
                | Self::Removed { .. }
                | Self::Released { .. }
                | Self::Committed { .. }
        )
    }

    /// Notes what kind of event it was, and how it went.
    pub(super) fn note(&self, tally: &mut Tally) {
        tally.note("calls");
        match self {
            Self::Stored { answer: Ok(_), .. } => tally.note("stored"),
            Self::Stored { answer: Err(refusal), .. } => tally.note(match refusal.kind {
                StoreErrorKind::Conflict => "conflict",
                _ => "store refused",
            }),
            Self::Fetched { answer: Ok(batch), .. } => {
                tally.note(if batch.messages.is_empty() { "fetched nothing" } else { "fetched" });
            }
            Self::Removed { answer: Ok(done), .. } => tally.note_each(done, "removed", "not removed"),
            Self::Failed { answer: Ok(done), .. } => tally.note_each(done, "failed", "not failed"),
            Self::Released { .. } => tally.note("released"),
            Self::Renewed { answer: Ok(()), .. } => tally.note("renewed"),
            Self::Committed { .. } => tally.note("committed"),
            Self::Dropped { .. } => tally.note("dropped"),
            Self::Cancelled { answer: Ok(answers), .. } => {
                for answer in answers {
                    tally.note(match answer {
                        Cancellation::Cancelled => "cancelled",
                        Cancellation::InFlight => "too late to cancel",
                        Cancellation::NotFound => "nothing to cancel",
                    });
                }
            }
            Self::Rescheduled { answer: Ok(answer), .. } => tally.note(match answer {
                Rescheduling::Rescheduled(_) => "rescheduled",
                Rescheduling::InFlight => "too late to reschedule",
                Rescheduling::NotFound => "nothing to reschedule",
            }),
            Self::Rescheduled { answer: Err(_), .. } => tally.note("rescheduling refused"),
            Self::Looked { answer: Ok(Some(_)), .. } => tally.note("looked at"),
            Self::Listed { answer: Ok(lines), .. } if !lines.is_empty() => tally.note("listed"),
            Self::LeasesEnded { .. } => tally.note("leases ended"),
            Self::Closed { .. } => tally.note("reopened"),
            _ => {}
        }
        if let Self::Removed { answer: Err(refusal), .. }
        | Self::Failed { answer: Err(refusal), .. }
        | Self::Renewed { answer: Err(refusal), .. } = self
            && refusal.kind == StoreErrorKind::ClaimLost
        {
            tally.note("claim lost");
        }
    }
}
