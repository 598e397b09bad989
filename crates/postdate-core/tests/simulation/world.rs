//! The one thing that everything in a simulation shares: clock, chance, trace, oracle.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use postdate_core::{
    Backend as _, Claim, Clock, DelayedMessageStore, EndpointName, Memory, MessageId, TokioClock,
    TransactionMode,
};

use crate::{
    faults::{Injected, Planted},
    life::Life,
    oracle::Oracle,
    plan::{HEALED, Plan},
    rng::Rng,
    store::SharedClaim,
    trace::Trace,
};

pub(crate) const ENDPOINT: &str = "orders";

/// A world in which messages are delayed and things go wrong.
#[derive(Debug)]
pub(crate) struct World {
    pub plan: Plan,
    pub planted: Option<Planted>,
    pub memory: Memory,
    clock: StoreClock,
    start: Timestamp,
    state: Mutex<State>,
}

/// What changes in a world.
#[derive(Debug)]
pub(crate) struct State {
    pub rng: Rng,
    pub trace: Trace,
    pub oracle: Oracle,
    /// Claims of crashed processes and lost answers: nobody gives back what they hold.
    pub graveyard: Vec<Box<dyn Claim>>,
    /// Who holds what; for planted faults only.
    pub holders: BTreeMap<MessageId, SharedClaim>,
}

/// The clock of the store. It can be shifted for the time of one call, to plant a mistake.
#[derive(Clone, Debug)]
struct StoreClock {
    clock: TokioClock,
    shift_seconds: Arc<AtomicI64>,
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        self.clock.now() + SignedDuration::from_secs(self.shift_seconds.load(Relaxed))
    }
}

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>, keep_trace: bool) -> Arc<Self> {
        let plan = Plan::new(seed, planted);
        let start = Timestamp::from_second(1_800_000_000).expect("a time in the year 2027");
        let clock = StoreClock { clock: TokioClock::starting_at(start), shift_seconds: Arc::default() };
        let memory = Memory::builder().clock(clock.clone()).lease(plan.lease).build();
        let state = State {
            rng: Rng::new(seed),
            trace: Trace::new(keep_trace),
            oracle: Oracle::new(&plan, start),
            graveyard: Vec::new(),
            holders: BTreeMap::new(),
        };
        let world = Self { plan, planted, memory, clock, start, state: Mutex::new(state) };
        world.note(format_args!("seed {seed}: {:?}", world.plan));
        Arc::new(world)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time by the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.clock.now()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.now().duration_since(self.start).unsigned_abs()
    }

    pub(crate) fn healed(&self) -> bool {
        self.elapsed() >= HEALED
    }

    pub(crate) fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        let at = self.elapsed();
        self.state().trace.note(at, what);
    }

    /// A fault was injected, or something rare was brought about.
    pub(crate) fn count(&self, what: Injected) {
        let at = self.elapsed();
        let mut state = self.state();
        state.oracle.counters.count(what);
        state.trace.note(at, format_args!("! {what:?}"));
    }

    /// Whether a fault of this chance strikes now.
    pub(crate) fn strikes(&self, permille: u64, what: Injected) -> bool {
        let strikes = permille > 0 && !self.healed() && self.state().rng.chance(permille);
        if strikes {
            self.count(what);
        }
        strikes
    }

    /// Asks the oracle, who is told the time.
    pub(crate) fn judge<T>(&self, judge: impl FnOnce(&mut Oracle, Timestamp) -> T) -> T {
        let now = self.now();
        judge(&mut self.state().oracle, now)
    }

    /// Reads the store's clock as the given node's, where that mistake is planted.
    pub(crate) fn by_the_clock_of<T>(&self, life: &Life, call: impl FnOnce() -> T) -> T {
        if !self.has(Planted::ClientClock) {
            return call();
        }
        self.clock.shift_seconds.store(self.plan.skews[life.node], Relaxed);
        let answer = call();
        self.clock.shift_seconds.store(0, Relaxed);
        answer
    }

    /// Another handle on the store beneath all faults.
    pub(crate) fn open(&self) -> Arc<dyn DelayedMessageStore> {
        let endpoint = EndpointName::new(ENDPOINT).expect("a valid name");
        let opened = at_once(async {
            self.memory.set_up(&endpoint).await?;
            self.memory.open(&endpoint, TransactionMode::ReceiveOnly).await
        });
        opened.expect("a store in memory can be opened")
    }

    /// Looks whether everything is where it should be.
    pub(crate) fn audit(&self, store: &dyn DelayedMessageStore) {
        let holds = |id: &MessageId| at_once(store.get(id)).is_ok_and(|found| found.is_some());
        self.judge(|oracle, now| oracle.audit(now, holds));
    }
}

/// The answer of a store in memory, which never makes anybody wait.
pub(crate) fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("memory answers at once")
}
