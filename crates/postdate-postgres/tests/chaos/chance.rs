//! Numbers that can be had again.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// From `POSTDATE_SEED` if it is set. Printed, so that a failure shows it.
    pub(crate) fn new() -> Self {
        let set = std::env::var("POSTDATE_SEED").ok().map(|seed| seed.parse().unwrap());
        let seed = set.unwrap_or_else(|| u64::from(std::process::id()));
        println!("POSTDATE_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
