//! The checks for queues.

mod administration;
mod receiving;
mod sending;
mod settling;

use crate::harness::Check;

pub(crate) fn all() -> impl Iterator<Item = &'static Check> {
    [administration::CHECKS, sending::CHECKS, receiving::CHECKS, settling::CHECKS].into_iter().flatten()
}
