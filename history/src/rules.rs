//! What the judge must be told about a run.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// The rules of one run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rules {
    /// How often a message may arrive.
    pub guarantee: Guarantee,
    /// What the history contains.
    pub knowledge: Knowledge,
    /// Retries of a message that is refused: so many and one are its attempts.
    pub retries: u32,
    /// A refused message waits at least so long for its next attempt.
    pub shortest_retry: SignedDuration,
    /// Due times are rounded up to a multiple of this.
    pub resolution: SignedDuration,
    /// A message later than this goes to the error queue instead of to its destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_lateness: Option<SignedDuration>,
    /// When everything that is due has left the store, counted from [`Healed`](crate::What::Healed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub converges_within: Option<SignedDuration>,
}

/// How often a message may arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    /// Once, and again for every excuse.
    AtLeastOnce,
    /// Once: sending and removing are one transaction.
    ExactlyOnce,
}

/// What a history contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knowledge {
    /// Every effect in the moment in which it happens, as only a simulation can know.
    Effects,
    /// What each process was told. One that died may have done a little more than it could write down.
    Answers,
}
