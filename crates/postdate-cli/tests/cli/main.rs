//! The real binary, in empty directories.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

mod bench;
mod conformance;
#[cfg(feature = "postgres")]
mod database;
mod delivery;
mod errors;
mod foreign_text;
mod input;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
mod queues;
mod transport;
mod waiting;
