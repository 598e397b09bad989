//! The checks for queues.

mod administration;
mod browsing;
mod content;
mod dropped_calls;
mod endings;
mod receiving;
mod secrets;
mod sending;
mod settling;
mod sizes;
mod waking;

use crate::{harness::Check, histories};

pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [
        administration::CHECKS,
        browsing::CHECKS,
        sending::CHECKS,
        content::CHECKS,
        sizes::CHECKS,
        receiving::CHECKS,
        waking::CHECKS,
        settling::CHECKS,
        dropped_calls::CHECKS,
        endings::CHECKS,
        secrets::CHECKS,
        histories::queues::CHECKS,
    ]
    .into_iter()
    .flatten()
}
