//! The conformance suite of postdate: it judges any delayed message store and any set of queues.
//!
//! Every bullet of the *Contract* lists on the traits of `postdate-core` is a check here: a sentence that is
//! true of every store, tried against yours. A store that passes can be given to every engine of postdate.
//!
//! # Judging your store
//!
//! Add this crate to the `[dev-dependencies]` and a test without the standard harness:
//!
//! ```toml
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! The test is a `main` that says how a handle on a [`Place`] is opened. Here with the reference backend:
//!
//! ```no_run
//! use std::{process::ExitCode, sync::Arc};
//! use postdate_core::{Backend, Memory};
//!
//! fn main() -> ExitCode {
//!     postdate_conformance::stores("memory", |place| {
//!         let memory = place.shared(Memory::new);
//!         async move { Ok(Arc::new(memory) as Arc<dyn Backend>) }
//!     })
//! }
//! ```
//!
//! A store in a file opens `place.dir().join("x.db")`, one on a server a table, schema or container called
//! [`place.name()`](Place::name), which [`Suite::removing`] removes. The function is called for every handle that
//! a check asks for: two calls with the same place must come to the same messages by two ways, as two processes
//! would. A place is never used by two checks, and nothing is in it at first.
//!
//! Where claims are [transactions](postdate_core::ClaimKind::Transaction), each of which has a connection, a check holds
//! a dozen of them at once on one handle, and the histories share two handles with up to twice as many.
//!
//! [`queues`] does the same for a set of queues. Where both are in one place, give both to a [`Suite`]: then
//! it is also judged whether they share transactions.
//!
//! Some checks need what no call of a store brings about: a row that cannot be read, a newer schema, a user who
//! may make no tables. [`Suite::meddling`] takes the function that does such a thing; see [`Meddling`]. Without it
//! those checks are shown as ignored.
//!
//! # Running
//!
//! `cargo test --test conformance` runs all, `cargo test --test conformance cancel` those whose name contains
//! `cancel`. cargo-nextest works, too. Each check has its own place, its own runtime of two threads and a time
//! limit of a minute and four lease terms; leases of about three seconds are right here, since some checks wait
//! for their end. Random content comes from a seed that a failure names; `POSTDATE_SEED` brings it back.
//! `POSTDATE_LARGE=100000` makes the large backlog so large, where 20,000 messages are too few, or too many for a
//! store that is slow.
//!
//! The checks called `any_history_..` try random histories against a model that says what a store should answer. One
//! that goes otherwise is made as short as it can be and printed, with the command that repeats it. Their number is
//! set by `POSTDATE_HISTORIES` (256 unless it is set), and `POSTDATE_SEED` begins elsewhere. A value that is no number
//! is refused before any check.
//!
//! What a store says it cannot do ([`Capabilities`](postdate_core::Capabilities)) is shown as ignored, with the
//! capability that is missing; under cargo-nextest, which wants to know that before a test runs, as passed. A store
//! that needs a server calls [`absent`] where there is none; set `POSTDATE_REQUIRE=acme` (several names with
//! commas) where there has to be one, and the test fails if nothing was judged.
//!
//! # Judging a place
//!
//! [`Suite::beside`] judges a backend where it is used, in scratch places beside a URL that are removed afterwards,
//! and [`Suite::judge`] lets a program make its own report: `postdate conformance` does both.

mod bench;
mod canary;
mod checks;
mod counting;
mod cuts;
mod drive;
mod environment;
mod harness;
mod histories;
mod judge;
mod make;
mod meddling;
mod patience;
mod place;
mod queue_checks;
mod random;
mod scratch;
mod scripted;
mod suite;

use std::{process::ExitCode, sync::Arc};

use postdate_core::{Backend, Queues, StoreError};

pub use environment::{InvalidEnvironment, check_environment};
pub use harness::Outcome;
pub use judge::{CheckName, Stop, Verdict, all_checks};
pub use meddling::{Meddled, Meddling};
pub use place::Place;
pub use suite::{Suite, absent};

/// Judges a store; `open` opens a handle on a place. For the `main` of a test.
pub fn stores<F, Opening>(name: &str, open: F) -> ExitCode
where
    F: Fn(&Place) -> Opening + Send + Sync + 'static,
    Opening: Future<Output = Result<Arc<dyn Backend>, StoreError>> + Send + 'static,
{
    Suite::new(name).stores(open).run()
}

/// Judges a set of queues; `open` opens a handle on a place. For the `main` of a test.
pub fn queues<F, Opening>(name: &str, open: F) -> ExitCode
where
    F: Fn(&Place) -> Opening + Send + Sync + 'static,
    Opening: Future<Output = Result<Arc<dyn Queues>, StoreError>> + Send + 'static,
{
    Suite::new(name).queues(open).run()
}
