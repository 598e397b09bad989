//! Power loss, failing disks and full disks under the SQLite backend.

#![cfg(unix)]

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
