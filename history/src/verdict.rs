//! What the judge says.

use std::fmt;

use jiff::Timestamp;

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number: `S1` and so on.
    pub promise: &'static str,
    /// When that was found, by the store's clock.
    pub at: Timestamp,
    /// What happened.
    pub what: String,
}

/// How many messages ended how, and what happened by the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that clients tried to store.
    pub attempted: u64,
    /// Of those, told to be stored.
    pub acknowledged: u64,
    /// Messages that arrived at their destinations.
    pub delivered: u64,
    /// Messages that arrived in the error queue.
    pub moved: u64,
    /// Cancelled messages.
    pub cancelled: u64,
    /// Messages that are in the store still.
    pub pending: u64,
    /// Arrivals beyond the first of each message.
    pub duplicated: u64,
    /// Arrived although nobody was told that they were stored.
    pub recovered: u64,
    /// Acknowledged, and nowhere.
    pub lost: u64,
    /// Arrived although nobody ever sent them.
    pub unexpected: u64,
    /// Leases that ended before their messages were settled.
    pub leases_ran_out: u64,
    /// Locks on messages in the queue that ended before these were settled.
    pub locks_ran_out: u64,
    /// Events in the history.
    pub events: u64,
}

/// The end of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The first promises that were broken, in order.
    pub violations: Vec<Violation>,
    /// What there was.
    pub counts: Counts,
}

impl Verdict {
    /// Whether all promises were kept.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.promise, self.at, self.what)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempted, acknowledged, delivered, moved, cancelled, pending, .. } = self;
        writeln!(f, "{} events", self.events)?;
        writeln!(f, "attempted {attempted}, acknowledged {acknowledged}")?;
        writeln!(f, "delivered {delivered}, moved {moved}, cancelled {cancelled}, pending {pending}")?;
        let Self { duplicated, recovered, lost, unexpected, .. } = self;
        write!(f, "duplicated {duplicated}, recovered {recovered}, lost {lost}, unexpected {unexpected}")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violations.iter().try_for_each(|violation| writeln!(f, "{violation}"))?;
        self.counts.fmt(f)
    }
}
