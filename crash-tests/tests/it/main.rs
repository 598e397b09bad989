//! Power loss, failing disks and full disks under the SQLite backend.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "the figures and the seed are for those who ask for them")]

mod contrast;
mod engine;
mod examine;
mod failing;
mod full;
mod images;
mod ledger;
mod place;
mod set_up;
mod tmpfs;
mod world;
