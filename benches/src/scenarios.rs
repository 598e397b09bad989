//! The tasks, each in one file per kind.

mod drain;
mod lateness;
mod ours;
mod sinks;
mod store;

#[cfg(feature = "postgres")]
pub(crate) use ours::Ours;

use crate::contest::Scenario;

/// Those on SQLite, in the order of the report.
pub(crate) const SQLITE: &[Scenario] = &[
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

/// Those on PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) use crate::postgres::ALL as POSTGRES;
#[cfg(not(feature = "postgres"))]
pub(crate) const POSTGRES: &[Scenario] = &[];
