//! One run: three minutes of faults, then everything must settle.

use std::{sync::Arc, time::Duration};

use postdate_core::DelayedMessageStore;
use postdate_history::{Counts, Event, Violation, What};
use tokio::{runtime, task::JoinSet, time::sleep};

use crate::{
    clients::{Clients, Letter},
    faults::{Counters, Injected, Planted},
    node::Node,
    trace::Trace,
    world::World,
};

/// Long enough for the engine to forget destinations that nobody asks for.
const IDLE: Duration = Duration::from_secs(11 * 60);
/// How long the last messages may take.
const SETTLING: Duration = Duration::from_secs(90);
const AUDIT: Duration = Duration::from_secs(1);
const SLOW_AUDIT: Duration = Duration::from_secs(15);

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub violations: Vec<Violation>,
    pub counters: Counters,
    pub counts: Counts,
    pub hash: u64,
    pub trace: String,
    /// Empty if it was not kept.
    pub history: Vec<Event>,
}

impl Outcome {
    /// The broken promises, a line each.
    pub(crate) fn complaints(&self) -> String {
        self.violations.iter().map(|violation| format!("{violation}\n")).collect()
    }
}

/// Runs the world of a seed, with a mistake planted or without.
pub(crate) fn run(seed: u64, planted: Option<Planted>, keep: bool) -> Outcome {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O can be built");
    runtime.block_on(async {
        let world = World::new(seed, planted, keep);
        play(&world).await;
        let mut state = world.state();
        let trace = std::mem::replace(&mut state.trace, Trace::new(false));
        let (mut counters, counts) = (state.counters.clone(), state.judge.counts());
        counters.count_times(Injected::LeaseRanOut, counts.leases_ran_out);
        counters.count_times(Injected::LockRanOut, counts.locks_ran_out);
        counters.count_times(Injected::Duplicate, counts.duplicated);
        Outcome {
            violations: [state.judge.violations(), state.bounds.violations()].concat(),
            counters,
            counts,
            history: state.history.take().unwrap_or_default(),
            hash: trace.hash(),
            trace: trace.into_text(),
        }
    })
}

/// Plays until the end, or until a promise is broken.
async fn play(world: &Arc<World>) {
    let nodes: Arc<[Arc<Node>]> =
        (0..world.plan.nodes).map(|index| Arc::new(Node::new(world.clone(), index))).collect();
    let clients = Clients { world: world.clone(), nodes: nodes.clone() };
    let store = world.open();
    let mut tasks = JoinSet::new();
    for node in nodes.iter() {
        let node = node.clone();
        tasks.spawn(async move { node.live().await });
    }
    for (after, seconds) in world.plan.store_leaps.clone() {
        let world = world.clone();
        tasks.spawn(async move {
            sleep(after).await;
            world.leap(seconds);
        });
    }
    for number in 0..world.plan.messages {
        let letter = Letter::draw(world, number);
        tasks.spawn(clients.clone().post(letter));
    }
    if !until(world, &*store, AUDIT, || world.healed()).await {
        return;
    }
    world.record(What::Healed);
    // Clients that found no store are trying again, and nodes that were down are coming back.
    tasks.join_all().await;
    if settles(world, &clients, &*store).await
        && idle(world).await
        && last_letters(world, &clients, &*store).await
    {
        close(world, &nodes, &*store).await;
    }
}

/// Audits again and again until something is so. Answers whether all is well then.
async fn until(
    world: &World,
    store: &dyn DelayedMessageStore,
    pause: Duration,
    so: impl Fn() -> bool,
) -> bool {
    loop {
        world.audit(store);
        if !world.is_well() || so() {
            return world.is_well();
        }
        sleep(pause).await;
    }
}

/// Audits until nothing is left to do. Answers whether all is well then.
async fn settles(world: &Arc<World>, clients: &Clients, store: &dyn DelayedMessageStore) -> bool {
    for number in 0.. {
        world.audit(store);
        if !world.is_well() || !is_busy(world) {
            break;
        }
        // Whether a message or the store is to blame for a failure, only another message can show.
        if world.has_queued() {
            clients.clone().post(Letter::witness(number)).await;
        }
        sleep(SLOW_AUDIT).await;
    }
    world.is_well()
}

fn is_busy(world: &World) -> bool {
    let now = world.now();
    world.state().judge.is_busy(now)
}

/// A time in which there is nothing to do.
async fn idle(world: &World) -> bool {
    // What was settled last may still be on its way back.
    sleep(SETTLING).await;
    let before = world.state().bounds.calls();
    sleep(IDLE).await;
    world.watch(|bounds, now| bounds.idled(&before, IDLE, now));
    world.is_well()
}

/// Each destination gets another message, so that every breaker has a reason to close.
async fn last_letters(world: &World, clients: &Clients, store: &dyn DelayedMessageStore) -> bool {
    for letter in Letter::last_ones(&world.plan) {
        clients.clone().post(letter).await;
    }
    sleep(SETTLING).await;
    world.audit(store);
    if is_busy(world) {
        world.violated("L1", "a last message is still there".to_owned());
    }
    world.is_well()
}

async fn close(world: &World, nodes: &[Arc<Node>], store: &dyn DelayedMessageStore) {
    for (life, breaker) in nodes.iter().flat_map(|node| node.tripped()) {
        world.watch(|bounds, now| bounds.still_tripped(&life, &breaker, now));
    }
    for node in nodes {
        node.stop().await;
    }
    world.audit(store);
}
