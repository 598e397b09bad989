//! The checks for stores.

mod basics;
mod batches;
mod claims;
mod endpoints;
mod failures;
mod limits;
mod modes;
mod races;
mod scheduled;
mod time;
mod wake;

use crate::{harness::Check, histories};

pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        basics::CHECKS,
        batches::CHECKS,
        time::CHECKS,
        claims::CHECKS,
        races::CHECKS,
        failures::CHECKS,
        scheduled::CHECKS,
        modes::CHECKS,
        endpoints::CHECKS,
        wake::CHECKS,
        limits::CHECKS,
        histories::CHECKS,
    ]
    .into_iter()
    .flatten()
}
