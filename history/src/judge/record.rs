//! What is known of a message and of a claim.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::{Counts, Wanted};

/// A message.
#[derive(Debug)]
pub(super) struct Record {
    pub content: u64,
    pub wanted: Wanted,
    pub patience: Option<SignedDuration>,
    pub attempted: Timestamp,
    pub acknowledged: bool,
    /// When it was first handed to a queue.
    pub handed_over: Option<Timestamp>,
    /// How often it was handed to a queue.
    pub copies: u32,
    /// How often it is in there.
    pub queued: u32,
    /// No store takes it.
    pub unstorable: bool,
    /// It is in the store.
    pub kept: Option<Kept>,
    pub lease: Option<Lease>,
    pub delivered: u32,
    pub moved: u32,
    pub cancelled: bool,
    /// It was stored again after it had left the store.
    pub restored: u32,
    /// Destinations refused it so often.
    pub rejections: u32,
    /// It has no destination.
    pub homeless: bool,
    /// It was fetched too late to be sent.
    pub expired: bool,
    /// Attempts that failed by the message's own fault, as far as senders were told.
    pub attempts: u32,
    /// Each permits one more arrival.
    pub excuses: u32,
    /// Arrivals that senders were not told of.
    pub open: u32,
    /// Processes that held it when the clock leapt: they cannot know whether they still do, and under which claim.
    pub leapt: BTreeSet<u32>,
    /// Its holder died and may have done more than it could write down.
    pub unsure: bool,
}

/// A message in the store.
#[derive(Debug)]
pub(super) struct Kept {
    pub due: Timestamp,
    /// Not to be fetched before this.
    pub attempt: Timestamp,
    /// Patience begins here.
    pub since: Timestamp,
    /// Failures counted by the store.
    pub failures: u32,
}

/// Who holds a message, by the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub claim: u64,
    pub process: u32,
    pub granted: Timestamp,
    /// None if it ends with its process.
    pub until: Option<Timestamp>,
}

/// A claim that has not ended in order.
#[derive(Debug)]
pub(super) struct Claim {
    pub process: u32,
    pub ids: Vec<String>,
    /// Its holder cannot reach it.
    pub buried: bool,
}

impl Record {
    pub(super) fn new(
        content: u64,
        wanted: Wanted,
        patience: Option<SignedDuration>,
        attempted: Timestamp,
    ) -> Self {
        Self {
            content,
            wanted,
            patience,
            attempted,
            acknowledged: false,
            handed_over: None,
            copies: 0,
            queued: 0,
            unstorable: false,
            kept: None,
            lease: None,
            delivered: 0,
            moved: 0,
            cancelled: false,
            restored: 0,
            rejections: 0,
            homeless: false,
            expired: false,
            attempts: 0,
            excuses: 0,
            open: 0,
            leapt: BTreeSet::new(),
            unsure: false,
        }
    }

    pub(super) fn arrivals(&self) -> u32 {
        self.delivered + self.moved
    }

    pub(super) fn is_settled(&self) -> bool {
        self.arrivals() > 0 || self.cancelled
    }

    pub(super) fn is_lost(&self) -> bool {
        self.acknowledged && self.queued == 0 && self.kept.is_none() && !self.is_settled()
    }

    /// Whether something happened that makes counting attempts inexact.
    pub(super) fn is_excused(&self) -> bool {
        self.excuses > 0 || self.open > 0 || self.restored > 0
    }

    pub(super) fn held(&self, at: Timestamp) -> Option<&Lease> {
        self.lease.as_ref().filter(|lease| lease.is_valid(at))
    }

    pub(super) fn keep(&mut self, due: Timestamp, failures: u32, since: Timestamp) {
        self.kept = Some(Kept { due, attempt: due, since, failures });
    }

    pub(super) fn count(&self, counts: &mut Counts) {
        counts.attempted += 1;
        counts.acknowledged += u64::from(self.acknowledged);
        counts.delivered += u64::from(self.delivered > 0);
        counts.moved += u64::from(self.moved > 0);
        counts.cancelled += u64::from(self.cancelled);
        counts.pending += u64::from(self.kept.is_some());
        counts.duplicated += u64::from(self.arrivals().saturating_sub(1));
        counts.recovered += u64::from(self.arrivals() > 0 && !self.acknowledged);
        counts.lost += u64::from(self.is_lost());
    }
}

impl Lease {
    pub(super) fn is_valid(&self, at: Timestamp) -> bool {
        self.until.is_none_or(|until| at < until)
    }
}
