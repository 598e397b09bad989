//! Randomness from one number, the same on every machine and for ever.

use std::{ops::Range, time::Duration};

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring streams.
        Self((seed ^ 0xD1B5_4A32_D192_ED03).wrapping_mul(GOLDEN))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub(crate) fn millis(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    pub(crate) fn seconds(&mut self, range: Range<u64>) -> Duration {
        self.millis(range.start * 1_000..range.end * 1_000)
    }

    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.within(0..1_000) < permille
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let last = from.len() as u64;
        let at = self.within(0..last);
        from[usize::try_from(at).expect("an index of a slice fits")]
    }
}
