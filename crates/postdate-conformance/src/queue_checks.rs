//! The checks for queues.

mod administration;
mod receiving;
mod sending;
mod settling;

use crate::{harness::Check, histories};

pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [administration::CHECKS, sending::CHECKS, receiving::CHECKS, settling::CHECKS, histories::queues::CHECKS]
        .into_iter()
        .flatten()
}
