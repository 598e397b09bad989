//! The real binary, in empty directories.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

mod bench;
mod conformance;
mod delivery;
mod errors;
mod foreign_text;
mod input;
mod place;
mod queues;
mod waiting;
