//! What kind of world a seed is: each draws which faults exist, so that no fault always hides another.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    ops::Range,
    time::Duration,
};

use jiff::SignedDuration;
use postdate_core::{Backoff, CatchUp, Settings, TransactionMode};
use postdate_history::{Guarantee, Knowledge, Rules};

use crate::{faults::Planted, rng::Rng};

/// Faults happen until then.
pub(crate) const HEALED: Duration = Duration::from_secs(180);
/// The cap on waits, M in the promises.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a batch may take to send, T in the promises.
pub(crate) const SEND_TIME_LIMIT: Duration = Duration::from_secs(10);
/// Everything settles so long after the faults have stopped: a lease, the longest wait, and all the back-off
/// steps of a message that is refused again and again.
const CONVERGENCE: SignedDuration = SignedDuration::from_secs(30 + 60 + 90);
/// The longest pause after a failed move to the error queue. Only clocks that leap lead to it within a run.
const LONGEST_MOVE_PAUSE: SignedDuration = SignedDuration::from_secs(300);
const FIRST_RETRY: Duration = Duration::from_millis(500);
pub(crate) const RETRY_BACKOFF: Backoff = Backoff::new(FIRST_RETRY, Duration::from_secs(20));

/// May be down; in some worlds it is down for good.
pub(crate) const BILLING: &str = "billing";
/// Is never down.
pub(crate) const SHIPPING: &str = "shipping";
/// May be slow or hang.
pub(crate) const ARCHIVE: &str = "archive";
/// Does not exist.
pub(crate) const NOWHERE: &str = "nowhere";
pub(crate) const DESTINATIONS: [&str; 3] = [BILLING, SHIPPING, ARCHIVE];

/// Periods of an outage, measured from the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outages(Vec<Range<Duration>>);

/// Who hears of a change of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// Every node.
    All,
    /// The node that made it: a store that cannot tell others.
    Own,
    /// Nobody.
    Nobody,
}

/// What may befall a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The process is gone at once; its leases must run out.
    Crash,
    /// The handle is dropped; what it held is given back.
    Drop,
    /// It is stopped in order and started again.
    Stop,
    /// Nothing it does proceeds for a while.
    Freeze,
    /// It crashes and never comes back.
    Death,
}

/// A world.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub nodes: usize,
    pub messages: u64,
    pub retries: u32,
    pub batch_size: usize,
    pub concurrency: usize,
    /// Messages per second while behind.
    pub catch_up: Option<u32>,
    pub lease: Duration,
    pub longest_wait: Duration,
    pub wakes: Wakes,
    /// Per mille, as all chances here.
    pub lost_wakes: u64,
    pub failing_calls: u64,
    pub slow_calls: u64,
    pub lost_acknowledgements: u64,
    pub slow_archive: u64,
    pub hanging_archive: u64,
    pub hanging_error_queue: u64,
    pub bad_messages: u64,
    /// Nodes pump, and clients hand messages over to them.
    pub pumps: bool,
    pub store_outages: Outages,
    pub queue_outages: Outages,
    pub billing_outages: Outages,
    pub error_queue_outages: Outages,
    pub fates: Vec<Fate>,
    /// Of each node's clock against the store's, in seconds.
    pub skews: Vec<i64>,
    /// When and by how many seconds the clock of the store leaps.
    pub store_leaps: Vec<(Duration, i64)>,
    /// When and by how many seconds the clocks of all processes leap.
    pub process_leap: Option<(Duration, i64)>,
    /// Sending and removing are one transaction.
    pub one_transaction: bool,
    /// Claims are transactions: what they do takes effect when they end.
    pub claims_in_transactions: bool,
    pub maximum_lateness: Option<Duration>,
    pub slow_after: Duration,
    pub drain_time: Duration,
}

impl Plan {
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let rng = &mut Rng::new(seed ^ 0xC0FFEE);
        // Of its own, so that a new option leaves the others of a seed as they were.
        let extra = &mut Rng::new(seed ^ 0x0DD_BA11);
        let nodes = rng.pick(&[1, 1, 2, 3]);
        let skewed = rng.chance(300);
        let skew = |rng: &mut Rng| if skewed { rng.pick(&[-3_600, -60, 60, 3_600]) } else { 0 };
        let mut plan = Self {
            nodes,
            messages: rng.within(8..30),
            retries: rng.pick(&[0, 1, 3]),
            batch_size: rng.pick(&[1, 3, 100]),
            concurrency: rng.pick(&[1, 2, 3]),
            catch_up: rng.pick(&[None, None, None, None, Some(1), Some(5)]),
            lease: Duration::from_secs(rng.pick(&[12, 30])),
            longest_wait: LONGEST_WAIT,
            wakes: rng.pick(&[Wakes::All, Wakes::All, Wakes::Own, Wakes::Nobody]),
            lost_wakes: rng.pick(&[0, 0, 300]),
            failing_calls: rng.pick(&[0, 0, 0, 20, 150]),
            slow_calls: rng.pick(&[0, 20, 100, 300]),
            lost_acknowledgements: rng.pick(&[0, 0, 0, 100]),
            slow_archive: rng.pick(&[0, 0, 300]),
            hanging_archive: rng.pick(&[0, 0, 300]),
            hanging_error_queue: rng.pick(&[0, 0, 0, 300]),
            bad_messages: rng.pick(&[0, 150, 400]),
            pumps: false,
            store_outages: Outages::draw(rng, 250),
            queue_outages: Outages::default(),
            billing_outages: Outages::draw(rng, 350),
            error_queue_outages: Outages::draw(rng, 300),
            fates: Fate::draw(rng),
            skews: (0..nodes).map(|_| skew(rng)).collect(),
            store_leaps: Vec::new(),
            process_leap: None,
            one_transaction: extra.chance(200),
            claims_in_transactions: false,
            maximum_lateness: extra.pick(&[None, None, None, Some(5), Some(60)]).map(Duration::from_secs),
            slow_after: Duration::from_millis(extra.pick(&[100, 1_000, 1_000, 5_000])),
            drain_time: Duration::from_secs(extra.pick(&[2, 30, 30])),
        };
        plan.pumps = rng.chance(400);
        if plan.pumps {
            plan.queue_outages = Outages::draw(rng, 250);
        }
        if extra.chance(100) {
            plan.messages = extra.within(60..120);
        }
        let leap = |extra: &mut Rng| (extra.millis(1_000..150_000), extra.pick(&[-3_600, -20, 20, 3_600]));
        if extra.chance(150) {
            plan.store_leaps = (0..extra.within(1..3)).map(|_| leap(extra)).collect();
        }
        plan.process_leap = extra.chance(150).then(|| leap(extra));
        plan.claims_in_transactions = extra.chance(250) && planted.is_none();
        match planted {
            Some(Planted::NoWakeAndNoCap) => {
                plan.wakes = Wakes::Nobody;
                plan.longest_wait = 60 * LONGEST_WAIT;
            }
            Some(Planted::SendOutsideTransaction) => plan.one_transaction = true,
            Some(Planted::DropForgets) => plan.claims_in_transactions = true,
            Some(Planted::UncappedSleep) => plan.longest_wait = 60 * LONGEST_WAIT,
            _ => {}
        }
        plan
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.number_of_retries = self.retries;
        settings.retry_backoff = RETRY_BACKOFF;
        settings.batch_size = at_least_one(self.batch_size);
        settings.concurrency = at_least_one(self.concurrency);
        settings.send_time_limit = SEND_TIME_LIMIT;
        settings.longest_wait = self.longest_wait;
        settings.slow_after = self.slow_after;
        settings.drain_time = self.drain_time;
        if let Some(rate) = self.catch_up.and_then(NonZeroU32::new) {
            settings.catch_up = CatchUp::default().rate(rate);
        }
        settings.catch_up.maximum_lateness = self.maximum_lateness;
        settings
    }

    pub(crate) fn mode(&self) -> TransactionMode {
        if self.one_transaction { TransactionMode::TransactionScope } else { TransactionMode::ReceiveOnly }
    }

    /// What the judge must know.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            guarantee: match self.mode() {
                TransactionMode::TransactionScope => Guarantee::ExactlyOnce,
                _ => Guarantee::AtLeastOnce,
            },
            knowledge: Knowledge::Effects,
            retries: self.retries,
            shortest_retry: signed(FIRST_RETRY),
            resolution: SignedDuration::from_micros(1),
            maximum_lateness: self.maximum_lateness.map(signed),
            converges_within: Some(if self.store_leaps.is_empty() {
                CONVERGENCE
            } else {
                CONVERGENCE + LONGEST_MOVE_PAUSE
            }),
        }
    }

    /// Whether calls to the store always succeed.
    pub(crate) fn store_is_sound(&self) -> bool {
        self.failing_calls == 0 && self.store_outages.is_empty()
    }

    /// How late a healthy message may be whose destination is well, while faults are on; `None` where this
    /// world makes no promise.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let only_deaths = self.fates.iter().all(|fate| *fate == Fate::Death);
        if !self.store_is_sound()
            || !self.queue_outages.is_empty()
            || !only_deaths
            || self.catch_up.is_some()
            || self.maximum_lateness.is_some()
        {
            return None;
        }
        // Nobody tells that the transaction of a dead process has ended.
        if self.claims_in_transactions && !self.fates.is_empty() {
            return None;
        }
        // In one transaction the messages of a batch wait for each other.
        let in_one_transaction = self.one_transaction || self.claims_in_transactions;
        if in_one_transaction && self.slow_archive + self.hanging_archive + self.hanging_error_queue > 0 {
            return None;
        }
        // Nobody is woken by a clock that leaps.
        let is_heard = self.every_change_is_heard() && self.store_leaps.is_empty();
        let for_wakes = if is_heard { Duration::ZERO } else { LONGEST_WAIT };
        let for_leases = if self.fates.is_empty() { Duration::ZERO } else { self.lease };
        // Slow calls add up where one small batch follows the other: for each thirty messages.
        let slow = match self.slow_calls {
            0 => 3,
            1..=100 => 10,
            _ => 20,
        };
        let mut at_hand = Duration::from_secs(slow * self.messages.div_ceil(30));
        if self.slow_archive + self.hanging_archive + self.hanging_error_queue > 0 {
            // So long a slow destination keeps its place, and the error queue after it.
            at_hand += 2 * self.slow_after;
        }
        Some(at_hand + for_wakes + for_leases)
    }

    fn every_change_is_heard(&self) -> bool {
        let by_all = self.wakes == Wakes::All || (self.wakes == Wakes::Own && self.nodes == 1);
        by_all && self.lost_wakes == 0
    }
}

impl Fate {
    fn draw(rng: &mut Rng) -> Vec<Self> {
        if rng.chance(500) {
            return Vec::new();
        }
        let all = [Self::Crash, Self::Drop, Self::Stop, Self::Freeze, Self::Death];
        all.into_iter().filter(|_| rng.chance(400)).collect()
    }
}

impl Outages {
    fn draw(rng: &mut Rng, permille: u64) -> Self {
        if !rng.chance(permille) {
            return Self::default();
        }
        if rng.chance(200) {
            return Self(vec![Duration::ZERO..HEALED]);
        }
        let periods = (0..rng.within(1..4)).map(|_| {
            let start = rng.millis(0..120_000);
            start..start + rng.millis(200..60_000)
        });
        Self(periods.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn cover(&self, at: Duration) -> bool {
        self.0.iter().any(|period| period.contains(&at))
    }
}

pub(crate) fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).expect("less than ages")
}

fn at_least_one(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)
}
