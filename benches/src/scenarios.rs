//! The tasks, each in one file per kind.

mod drain;
mod lateness;
mod ours;
mod sinks;
mod store;

use crate::contest::Scenario;

/// All of them, in the order of the report.
pub(crate) const ALL: &[Scenario] = &[
    store::ONE_PRODUCER,
    store::EIGHT_PRODUCERS,
    store::BATCHES_OF_100,
    store::BATCHES_OF_1000,
    drain::NO_OP,
    drain::LOCAL_QUEUE,
    lateness::LOW_LOAD,
    drain::BACKLOG,
    drain::BACKLOG_COST,
];
