//! What befalls servers, connections and clocks while messages are stored and delivered.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "who looks at a test that failed wants to know how far it came")]

mod backends;
mod chance;
mod clients;
#[cfg(target_os = "linux")]
mod clock;
mod cuts;
mod ledger;
mod proxy;
mod receivers;
mod restarts;
mod scene;
mod silence;
