//! What the crate does, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claims;
mod errors;
mod place;
mod pump;
mod queues;
mod store;
mod transactions;
mod wake;
