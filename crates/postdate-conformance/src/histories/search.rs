//! Looking for a history that goes otherwise than the model says, and for the shortest one.

use std::{
    fmt::{self, Display},
    num::NonZeroU64,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::tally::Tally;
use crate::environment::{HISTORIES, SEED};

/// So often a history is walked that was too slow for the leases of the store.
const PATIENT_TRIES: usize = 5;

/// The search of one check.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// The check's name.
    pub(super) check: &'static str,
    /// So many histories are tried unless the environment says otherwise.
    pub(super) histories: u64,
    /// So many are walked at the same time.
    pub(super) at_once: u64,
    /// So often a shorter history is walked before it counts as right: chance may decide.
    pub(super) tries: usize,
    /// A walk that takes longer hangs.
    pub(super) longest: Duration,
    /// For so long a failing history is made shorter: where every walk waits, that has no end.
    pub(super) shortening: Duration,
    /// What must have happened, or nothing was proved.
    pub(super) wanted: &'static [&'static str],
}

/// The usual number of histories of a check.
pub(super) const USUAL: u64 = 256;

/// What a history is made of: its beginning can be shown.
pub(super) trait Steps: Display + Clone + Send + Sync + 'static {
    /// The first so many of them.
    fn first(&self, steps: usize) -> Self;
}

/// At which step it went wrong; the first is 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtStep(pub(super) usize);

/// A history took so long that leases may have ended in it: it says nothing.
#[derive(Debug)]
pub(super) struct TooSlow;

/// How much longer a check may take for the histories in it: each sets up a place, and a server shared with others
/// takes its time for that.
pub(crate) fn more_time() -> Duration {
    const EACH: Duration = Duration::from_millis(250);
    let asked = HISTORIES.get().ok().flatten().map_or(USUAL, NonZeroU64::get);
    EACH.saturating_mul(u32::try_from(asked).unwrap_or(u32::MAX))
}

impl Search {
    /// Walks through histories until one goes wrong; that one is made as short as it can be. With the name of the
    /// check, `repeat` is the command that repeats it.
    pub(super) async fn run<S, W, Walking>(
        self,
        repeat: Arc<str>,
        histories: impl FnOnce() -> S + Send + 'static,
        walk: W,
    ) -> Result<()>
    where
        S: Strategy,
        S::Value: Steps,
        W: Fn(S::Value) -> Walking + Send + Sync + 'static,
        Walking: Future<Output = Result<Tally>> + Send + 'static,
    {
        let runtime = Handle::current();
        let walk = Arc::new(walk);
        // What makes histories and makes them shorter must stay on one thread.
        spawn_blocking(move || self.search(&repeat, &runtime, &histories(), &walk)).await?
    }

    fn search<S, W, Walking>(self, repeat: &str, runtime: &Handle, strategy: &S, walk: &Arc<W>) -> Result<()>
    where
        S: Strategy,
        S::Value: Steps,
        W: Fn(S::Value) -> Walking + Send + Sync + 'static,
        Walking: Future<Output = Result<Tally>> + Send + 'static,
    {
        let (first, asked) = (SEED.get()?, HISTORIES.get()?);
        let mut seeds = 0..asked.map_or(self.histories, NonZeroU64::get);
        let mut tally = Tally::default();
        while !seeds.is_empty() {
            let batch: Vec<_> = seeds
                .by_ref()
                .take(usize::try_from(self.at_once)?)
                .map(|i| first.unwrap_or(0).wrapping_add(i))
                .collect();
            let mut trees = batch.iter().map(|seed| tree(strategy, *seed)).collect::<Result<Vec<_>>>()?;
            let walks: Vec<_> = trees
                .iter()
                .map(|tree| runtime.spawn(self.walk_through(Arc::clone(walk), tree.current())))
                .collect();
            for (i, walked) in walks.into_iter().enumerate() {
                match runtime.block_on(walked)? {
                    Ok(more) => tally.add(&more),
                    Err(why) => {
                        let shortest = self.shorten(runtime, trees.swap_remove(i), why, walk);
                        bail!(self.report(repeat, batch[i], &shortest));
                    }
                }
            }
        }
        let is_usual = first.is_none() && asked.is_none();
        let missing = tally.missing(self.wanted);
        ensure!(!is_usual || missing.is_empty(), "this was in no history: {missing:?}; there were {tally}");
        Ok(())
    }

    fn shorten<T, W, Walking>(
        self,
        runtime: &Handle,
        mut tree: T,
        why: anyhow::Error,
        walk: &Arc<W>,
    ) -> (T::Value, anyhow::Error)
    where
        T: ValueTree,
        T::Value: Steps,
        W: Fn(T::Value) -> Walking + Send + Sync + 'static,
        Walking: Future<Output = Result<Tally>> + Send + 'static,
    {
        let begin = Instant::now();
        let mut shortest = (tree.current(), why);
        let mut goes_wrong = true;
        while begin.elapsed() < self.shortening
            && if goes_wrong { tree.simplify() } else { tree.complicate() }
        {
            let history = tree.current();
            let mut tries = (0..self.tries)
                .map(|_| runtime.block_on(self.walk_through(Arc::clone(walk), history.clone())));
            let wrong = tries.find_map(Result::err);
            goes_wrong = wrong.is_some();
            shortest = wrong.map(|why| (history, why)).unwrap_or(shortest);
        }
        shortest
    }

    /// Walks through a history, again if it was too slow.
    async fn walk_through<H, W, Walking>(self, walk: Arc<W>, history: H) -> Result<Tally>
    where
        H: Steps,
        W: Fn(H) -> Walking + Send + Sync + 'static,
        Walking: Future<Output = Result<Tally>> + Send + 'static,
    {
        let mut tries = 0;
        let mut tally = loop {
            tries += 1;
            // As a task, so that a panic of the store is the failure of a history.
            let walking = timeout(self.longest, tokio::spawn(walk(history.clone())));
            let walked = walking.await.with_context(|| format!("some call hangs for {:?}", self.longest))?;
            match walked? {
                Err(why) if why.is::<TooSlow>() && tries < PATIENT_TRIES => {}
                walked => break walked?,
            }
        };
        tally.note("histories");
        Ok(tally)
    }

    fn report<H: Steps>(self, repeat: &str, seed: u64, (history, why): &(H, anyhow::Error)) -> String {
        let steps = why.downcast_ref().map_or(usize::MAX, |AtStep(step)| *step);
        let history = history.first(steps);
        let (check, seed_is, histories_are) = (self.check, SEED.name, HISTORIES.name);
        format!(
            "{why:#}\nthe history: {history}\nrepeat it: {seed_is}={seed} {histories_are}=1 {repeat} {check}"
        )
    }
}

fn tree<S: Strategy>(strategy: &S, seed: u64) -> Result<S::Tree> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let chance = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), chance);
    strategy.new_tree(&mut runner).map_err(|reason| anyhow!("no history can be made: {reason}"))
}

impl Display for AtStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}", self.0)
    }
}

impl Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "it takes longer than a lease of this store: choose a longer term, or a machine with less to do",
        )
    }
}

impl std::error::Error for TooSlow {}
