//! Delayed delivery as an application sees it, on the memory backend and under paused time.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

mod errors;
mod operating;
mod outages;
mod panics;
mod pumping;
mod scenario;
mod settling;
mod starting;
mod stopping;
mod timing;
mod troubled;

/// The store that all are on.
fn memory() -> postdate_core::MemoryBuilder {
    postdate_core::Memory::builder()
}
