//! The one thing that everything in a simulation shares: clock, chance, trace, judge.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use jiff::Timestamp;
use postdate_core::{
    Backend as _, Claim, DelayedMessageStore, EndpointName, Memory, MessageId, Queues as _, ReceiveClaim,
    TransactionMode,
};
use postdate_history::{Event, Judge, What};
use tokio::time::Instant;

use crate::{
    bounds::{Bounds, Moment},
    clock::StoreClock,
    faults::{Counters, Injected, Planted},
    life::{Life, Spot},
    plan::{HEALED, Plan},
    rng::Rng,
    source::timeouts,
    store::SharedClaim,
    trace::Trace,
    transaction::SimTransaction,
};

pub(crate) const ENDPOINT: &str = "orders";

/// A world in which messages are delayed and things go wrong.
#[derive(Debug)]
pub(crate) struct World {
    pub plan: Plan,
    pub planted: Option<Planted>,
    pub memory: Memory,
    clock: StoreClock,
    start: Instant,
    state: Mutex<State>,
}

/// What changes in a world.
#[derive(Debug)]
pub(crate) struct State {
    pub rng: Rng,
    pub trace: Trace,
    pub judge: Judge,
    pub bounds: Bounds,
    pub counters: Counters,
    /// What happened, where somebody wants to have it.
    pub history: Option<Vec<Event>>,
    natures: BTreeMap<MessageId, Nature>,
    last_claim: u64,
    /// Claims of crashed processes and lost answers: nobody gives back what they hold.
    pub graveyard: Vec<Box<dyn Claim>>,
    pub buried_locks: Vec<Box<dyn ReceiveClaim>>,
    /// Where the last message in the queue stands.
    pub last_position: u64,
    handed_over: BTreeSet<MessageId>,
    /// What stood beside a message that was refused; for a planted fault only.
    pub tainted: BTreeSet<MessageId>,
    /// Who holds what; for planted faults only.
    pub holders: BTreeMap<MessageId, SharedClaim>,
}

/// What kind of message it is, which the engine has to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    Healthy,
    /// Its destination refuses it.
    Poison,
    /// The dispatcher panics over it.
    Panics,
    /// Its destination does not exist.
    Homeless,
    /// It is handed to the queue without a word of when it is due.
    Unreadable,
    /// It is due beyond the end of time.
    Never,
    /// The store panics over it.
    BreaksStore,
}

impl World {
    /// `keep` keeps the trace as text, and the history.
    pub(crate) fn new(seed: u64, planted: Option<Planted>, keep: bool) -> Arc<Self> {
        let plan = Plan::new(seed, planted);
        let start = Timestamp::from_second(1_800_000_000).expect("a time in the year 2027");
        let clock = StoreClock::starting_at(start, planted == Some(Planted::ClockNeverGoesBack));
        let mut memory = Memory::builder().clock(clock.clone()).lease(plan.lease);
        if plan.claims_in_transactions {
            memory = memory.claims_in_transactions();
        }
        let memory = memory.build();
        at_once(memory.queues().create(&timeouts())).expect("a queue in memory can be created");
        let rules = plan.rules();
        let state = State {
            rng: Rng::new(seed),
            trace: Trace::new(keep),
            judge: Judge::new(rules.clone()),
            bounds: Bounds::new(plan.messages),
            counters: Counters::default(),
            history: keep.then(Vec::new),
            natures: BTreeMap::new(),
            last_claim: 0,
            graveyard: Vec::new(),
            buried_locks: Vec::new(),
            last_position: 0,
            handed_over: BTreeSet::new(),
            tainted: BTreeSet::new(),
            holders: BTreeMap::new(),
        };
        let start = Instant::now();
        let world = Self { plan, planted, memory, clock, start, state: Mutex::new(state) };
        world.note(format_args!("seed {seed}: {:?}", world.plan));
        world.record(What::Began { rules });
        Arc::new(world)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time by the store's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.right()
    }

    /// When a lease ends that begins now.
    pub(crate) fn lease_end(&self) -> Timestamp {
        self.now() + self.plan.lease
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
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
        state.counters.count(what);
        state.trace.note(at, format_args!("! {what:?}"));
    }

    /// A process was killed at this point of its work.
    pub(crate) fn struck(&self, spot: Spot) {
        let at = self.elapsed();
        let mut state = self.state();
        state.counters.strike(spot);
        state.trace.note(at, format_args!("! killed at {spot:?}"));
    }

    /// The clock of the store leaps.
    pub(crate) fn leap(&self, seconds: i64) {
        self.count(if seconds > 0 { Injected::StoreClockAhead } else { Injected::StoreClockBack });
        self.clock.leap(seconds);
        self.record(What::ClockLeapt);
    }

    /// How far the clock of a node is from that of the store, in seconds.
    pub(crate) fn skew(&self, node: usize) -> i64 {
        let leapt = self.plan.process_leap.filter(|(when, _)| self.elapsed() >= *when);
        self.plan.skews[node] + leapt.map_or(0, |(_, seconds)| seconds)
    }

    /// Whether a fault of this chance strikes now.
    pub(crate) fn strikes(&self, permille: u64, what: Injected) -> bool {
        let strikes = permille > 0 && !self.healed() && self.state().rng.chance(permille);
        if strikes {
            self.count(what);
        }
        strikes
    }

    /// Something happened, outside of all processes.
    pub(crate) fn record(&self, what: What) {
        self.take(Event::outside(self.now(), what));
    }

    /// Something happened in a process or to it.
    pub(crate) fn record_of(&self, life: &Life, what: What) {
        self.take(Event::of(life.number, self.now(), what));
    }

    fn take(&self, event: Event) {
        let mut state = self.state();
        state.trace.take(&event);
        state.bounds.happened(&event.what);
        state.judge.take(&event);
        if let Some(history) = &mut state.history {
            history.push(event);
        }
    }

    /// A transaction has been committed.
    pub(crate) fn take_effect(&self, transaction: SimTransaction) {
        for effect in transaction.into_effects() {
            if matches!(&effect, What::Moved { reason, .. } if reason == "expired") {
                self.count(Injected::Expired);
            }
            self.record(effect);
        }
    }

    /// From here on the leases of this process may run out.
    pub(crate) fn disturbed(&self, life: &Life) {
        if life.is_disturbed_for_the_first_time() {
            self.record_of(life, What::Disturbed);
        }
    }

    /// Asks those who watch how processes behave.
    pub(crate) fn watch<T>(&self, watch: impl FnOnce(&mut Bounds, Moment) -> T) -> T {
        let now = Moment { store: self.now(), elapsed: self.elapsed() };
        watch(&mut self.state().bounds, now)
    }

    /// A promise is broken that nobody else watches over.
    pub(crate) fn violated(&self, promise: &'static str, what: String) {
        self.watch(|bounds, now| bounds.violated(promise, now, what));
    }

    /// Whether nothing has gone wrong so far.
    pub(crate) fn is_well(&self) -> bool {
        let state = self.state();
        state.judge.violations().is_empty() && state.bounds.violations().is_empty()
    }

    pub(crate) fn next_claim(&self) -> u64 {
        let mut state = self.state();
        state.last_claim += 1;
        state.last_claim
    }

    pub(crate) fn is_a(&self, id: &MessageId, nature: Nature) {
        self.state().natures.insert(id.clone(), nature);
    }

    pub(crate) fn nature(&self, id: &MessageId) -> Option<Nature> {
        self.state().natures.get(id).copied()
    }

    /// It goes into the store through the queue.
    pub(crate) fn hands_over(&self, id: &MessageId) {
        self.state().handed_over.insert(id.clone());
    }

    pub(crate) fn is_handed_over(&self, id: &MessageId) -> bool {
        self.state().handed_over.contains(id)
    }

    /// Whether there is something in the queue.
    pub(crate) fn has_queued(&self) -> bool {
        self.state().judge.queued() > 0
    }

    pub(crate) fn is_tainted(&self, id: &MessageId) -> bool {
        self.state().tainted.contains(id)
    }

    /// Reads the store's clock as the given node's, where that mistake is planted.
    pub(crate) fn by_the_clock_of<T>(&self, life: &Life, call: impl FnOnce() -> T) -> T {
        if !self.has(Planted::ClientClock) {
            return call();
        }
        self.clock.shifted(self.skew(life.node), call)
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
        let depth =
            at_once(self.memory.queues().list()).map_or(0, |queues| queues.iter().map(|q| q.depth).sum());
        if depth != self.state().judge.queued() as u64 {
            self.violated("S1", "the queue and the record of its effects disagree".to_owned());
        }
        let holds = |id: &str| {
            let id = MessageId::new(id).expect("an id that was valid before");
            at_once(store.get(&id)).is_ok_and(|found| found.is_some())
        };
        let (now, mut state) = (self.now(), self.state());
        let State { judge, history, natures, .. } = &mut *state;
        let Some(history) = history else { return judge.audit(now, holds) };
        let ids = natures.keys().map(MessageId::to_string).filter(|id| holds(id)).collect();
        let audited = Event::outside(now, What::Audited { ids });
        judge.take(&audited);
        history.push(audited);
    }
}

/// The answer of a store in memory, which never makes anybody wait.
pub(crate) fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("memory answers at once")
}
