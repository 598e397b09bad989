//! Random content that a seed brings back.

use anyhow::{Context as _, Result};
use uuid::Uuid;

use crate::environment::SEED;

/// A generator of the SplitMix64 family: the same seed, the same content.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// Begins with the seed in `POSTDATE_SEED`, or with a new one.
    pub(crate) fn new() -> Result<Self> {
        let seed = SEED.get()?.unwrap_or_else(|| Uuid::now_v7().as_u64_pair().1);
        Ok(Self { seed, state: seed })
    }

    /// Says of a failure how to repeat it.
    pub(crate) fn seed_on_failure<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.with_context(|| format!("repeat with {}={}", SEED.name, self.seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or_default()
    }

    /// A size up to `most`, small ones as often as large ones.
    pub(crate) fn size(&mut self, most: usize) -> usize {
        let bits = self.below(most.ilog2() as usize + 2);
        let end = 1_usize << bits;
        self.below(end).min(most)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// So many characters that are no control characters: letters, what databases treat specially, and what lies
    /// far up in Unicode.
    pub(crate) fn text(&mut self, chars: usize) -> String {
        const SPECIAL: [char; 16] = [
            ' ', '\'', '"', '\\', '%', '_', '[', ']', ';', '$', '?', ':', '\u{301}', '\u{202e}', '\u{feff}',
            'ß',
        ];
        let mut text = String::new();
        for _ in 0..chars {
            text.push(match self.below(4) {
                0 => SPECIAL[self.below(SPECIAL.len())],
                1 => u32::try_from(self.below(0x0011_0000))
                    .ok()
                    .and_then(char::from_u32)
                    .filter(|letter| !letter.is_control())
                    .unwrap_or('\u{fffd}'),
                _ => char::from(b"abcdefghijklmnopqrstuvwxyz"[self.below(26)]),
            });
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_content_and_sizes_reach_both_ends() {
        let mut one = Random { seed: 7, state: 7 };
        let mut other = one.clone();
        assert_eq!((one.text(40), one.bytes(13)), (other.text(40), other.bytes(13)));
        let sizes: Vec<_> = (0..2_000).map(|_| one.size(1_000)).collect();
        assert!(sizes.contains(&0) && sizes.iter().any(|size| *size > 900));
        assert!(sizes.iter().all(|size| *size <= 1_000));
        assert_eq!(one.text(250).chars().count(), 250);
    }
}
