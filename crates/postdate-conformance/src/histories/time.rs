//! What is known of the clock of a store, from what it says.

use anyhow::{Result, ensure};
use jiff::Timestamp;

/// Bounds of the store's clock. What is learnt during a step counts from the next one on: calls that overlap may
/// have happened in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreTime {
    now: Timestamp,
    heard: Timestamp,
    reckoned: Timestamp,
}

impl StoreTime {
    pub(super) fn unknown() -> Self {
        Self { now: Timestamp::MIN, heard: Timestamp::MIN, reckoned: Timestamp::MIN }
    }

    /// It was this time at least before the step began.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// The store says what time it is.
    pub(super) fn tell(&mut self, now: Timestamp) -> Result<()> {
        ensure!(now >= self.now, "the clock of the store went back from {} to {now}", self.now);
        self.heard = self.heard.max(now);
        Ok(())
    }

    /// The store reckoned a delay from this time: it has come by the end of the step.
    pub(super) fn reckoned_from(&mut self, time: Timestamp) {
        self.reckoned = self.reckoned.max(time);
    }

    /// Whether the store has to say the time before the step can end.
    pub(super) fn is_owed(&self) -> bool {
        self.reckoned > self.heard
    }

    /// The step is over.
    pub(super) fn settle(&mut self) -> Result<()> {
        ensure!(
            !self.is_owed(),
            "a delay was reckoned from {}, and it is only {}",
            self.reckoned,
            self.heard
        );
        self.now = self.heard;
        Ok(())
    }
}
