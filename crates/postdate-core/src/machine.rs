//! The decisions of the engines, as state machines that know no clock and do no I/O: time is passed in.

mod backoff;
mod breaker;
mod failure_rate;
mod gates;
pub(crate) mod intake;
mod rate_limit;
mod schedule;
mod sift;
mod verdict;

pub use backoff::Backoff;
pub(crate) use breaker::Breaker;
pub(crate) use failure_rate::FailureRate;
pub(crate) use gates::{Admission, Gates, Opened};
pub(crate) use schedule::{Action, Schedule, Step};
pub(crate) use sift::{Attempt, Sift, Sifted};
pub(crate) use verdict::{Policy, Verdict};
