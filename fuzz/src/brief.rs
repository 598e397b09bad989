//! Trying decoders for a moment, as part of every test run: their seeds, and inputs made from them.

use std::{
    env, fs, panic,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A decoder or parser, and what must hold of it whatever it is given.
pub(crate) struct Target {
    /// Also that of its folder of seeds, and of its libFuzzer binary.
    pub(crate) name: &'static str,
    /// Panics where something does not hold.
    pub(crate) run: fn(&[u8]),
    /// How many inputs are tried in a test run. All together are to take a few seconds.
    pub(crate) rounds: usize,
}

/// Longer than any input may take, on a machine that is busy with other things.
const TIME_LIMIT: Duration = Duration::from_secs(5);

const FILE: &str = "POSTDATE_FUZZ_FILE";
const SEED: &str = "POSTDATE_FUZZ_SEED";

/// Tries the targets, each with its seeds and with random inputs; or with the one file that `POSTDATE_FUZZ_FILE`
/// names, which lies in a folder that is called like its target.
///
/// # Panics
/// When something does not hold, with the command that repeats it.
pub(crate) fn briefly(targets: &[Target]) {
    if let Some(file) = env::var_os(FILE) {
        let file = root().join(file);
        let folder = file.parent().and_then(Path::file_name);
        for target in targets.iter().filter(|target| folder.is_some_and(|folder| folder == target.name)) {
            (target.run)(&fs::read(&file).expect("the file is there"));
        }
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = env::var(SEED).map_or(now.as_secs(), |seed| seed.parse().expect("a seed is a number"));
    try_all(targets, seed);
}

/// Tries the targets with inputs made from this seed.
///
/// # Panics
/// As [`briefly`].
pub(crate) fn try_all(targets: &[Target], seed: u64) {
    for target in targets {
        let seeds = seeds(target.name);
        let mut random = Random(seed);
        let made = std::iter::repeat_with(|| random.input(&seeds)).take(target.rounds);
        for (round, input) in seeds.iter().cloned().chain(made).enumerate() {
            try_one(target, &input, &format!("{seed}-{round}"));
        }
    }
}

fn try_one(target: &Target, input: &[u8], case: &str) {
    let begin = Instant::now();
    let held = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = begin.elapsed();
    if held.is_ok() && took < TIME_LIMIT {
        return;
    }
    let file = format!("fuzz/artifacts/{}/brief-{case}", target.name);
    let path = root().join(&file);
    let kept = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, input));
    panic!(
        "{} failed after {took:?} on an input of {} bytes; repeat it: {FILE}={file} cargo test fuzz (kept: {kept:?})",
        target.name,
        input.len()
    );
}

/// The seeds in the order of their names.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = root().join("fuzz/seeds").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.sort();
    let seeds: Vec<_> = paths.iter().filter_map(|path| fs::read(path).ok()).collect();
    assert!(!seeds.is_empty(), "{} holds no seed", folder.display());
    seeds
}

/// Of the repository.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package.ancestors().find(|folder| folder.join("fuzz/seeds").is_dir());
    root.expect("the tests run in the repository").to_owned()
}

/// SplitMix64: the same inputs from the same seed, on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or_default()
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| (self.next() >> 56) as u8).collect()
    }

    /// One in eight is noise, the others are changed seeds: noise alone does not get past the first letter.
    fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        if self.below(8) == 0 {
            return self.bytes(300);
        }
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(6) {
            let at = self.below(input.len() + 1);
            let end = at + self.below((input.len() - at).min(16) + 1);
            let other = &seeds[self.below(seeds.len())];
            match self.below(7) {
                0 if at < input.len() => input[at] ^= 1 << self.below(8),
                1 if at < input.len() => input[at] = (self.next() >> 56) as u8,
                2 => drop(input.drain(at..end)),
                3 => drop(input.splice(at..end, self.bytes(8))),
                4 => {
                    let again = input[at..end].to_vec();
                    drop(input.splice(at..at, again));
                }
                5 => {
                    let from = self.below(other.len() + 1);
                    drop(input.splice(at.., other[from..].iter().copied()));
                }
                _ => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    drop(input.splice(at..end, token.iter().copied()));
                }
            }
        }
        input
    }
}

/// What decoders are known to stumble over.
const TOKENS: [&[u8]; 24] = [
    b"\0",
    b"\n",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\u{202e}".as_bytes(),
    "e\u{301}".as_bytes(),
    "\u{1f4e6}".as_bytes(),
    b"\"",
    b"\\ud800",
    b"\\u0000",
    b"[[[[[[[[",
    b"{\"a\":",
    b"-1",
    b"18446744073709551616",
    b"9223372036854775807",
    b"99999999999y",
    b"-9999-01-01",
    b"24:00",
    b"60",
    b"[Europe/Berlin]",
    b"@",
    b"%00",
    b"?&=",
];
