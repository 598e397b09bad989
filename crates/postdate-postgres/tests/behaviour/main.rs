//! What the published suite does not see: the server's side of it, and what only this backend has.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod claims;
mod enqueue;
mod place;
mod queues;
mod schema;
#[cfg(unix)]
mod servers;
mod storing;
mod transactions;
mod wake;
