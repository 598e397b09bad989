//! Chance that can be repeated.

/// A sequence of numbers that follows from its seed: SplitMix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = self.draw() % (bound.max(1) as u64);
        usize::try_from(number).unwrap_or(0)
    }

    /// Yes, in so many of a thousand cases.
    pub fn permille(&mut self, rate: usize) -> bool {
        self.below(1_000) < rate
    }

    /// One of several.
    ///
    /// # Panics
    /// When there are none.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..count.div_ceil(8)).flat_map(|_| self.draw().to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }
}
