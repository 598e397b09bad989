//! The checks for stores.

mod backlog;
mod basics;
mod batches;
mod cancellation;
mod claims;
mod delivery;
mod endpoints;
mod failures;
mod fencing;
mod limits;
mod modes;
mod races;
mod round_trips;
mod scheduled;
mod schema;
mod secrets;
mod settling;
mod time;
mod unreadable;
mod wake;
mod zones;

use crate::{harness::Check, histories};

pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        basics::CHECKS,
        round_trips::CHECKS,
        batches::CHECKS,
        time::CHECKS,
        zones::CHECKS,
        claims::CHECKS,
        fencing::CHECKS,
        settling::CHECKS,
        races::CHECKS,
        failures::CHECKS,
        scheduled::CHECKS,
        modes::CHECKS,
        endpoints::CHECKS,
        wake::CHECKS,
        limits::CHECKS,
        histories::CHECKS,
        backlog::CHECKS,
        schema::CHECKS,
        unreadable::CHECKS,
        cancellation::CHECKS,
        secrets::CHECKS,
        delivery::CHECKS,
    ]
    .into_iter()
    .flatten()
}
