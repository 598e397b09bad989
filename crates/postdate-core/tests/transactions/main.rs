//! Delayed delivery as an application sees it, where the claims of the store are transactions: what is true of leases is
//! true here, and more.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

mod claims;
#[path = "../delivery/errors.rs"]
mod errors;
#[path = "../delivery/operating.rs"]
mod operating;
#[path = "../delivery/outages.rs"]
mod outages;
#[path = "../delivery/panics.rs"]
mod panics;
#[path = "../delivery/scenario.rs"]
mod scenario;
#[path = "../delivery/stopping.rs"]
mod stopping;
#[path = "../delivery/timing.rs"]
mod timing;
#[path = "../delivery/troubled.rs"]
mod troubled;

/// The store that all are on.
fn memory() -> postdate_core::MemoryBuilder {
    postdate_core::Memory::builder().claims_in_transactions()
}
