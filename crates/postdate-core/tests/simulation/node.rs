//! Nodes: processes that run delayed delivery until something befalls them.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postdate_core::{Address, BreakerName, DelayedDelivery, Event, Observer, StartError};
use postdate_history::What;
use tokio::time::sleep;

use crate::{
    destinations::{Role, SimDispatcher},
    faults::{Injected, Planted},
    life::{Ambush, Life, Spot, Trigger},
    plan::{Fate, HEALED},
    source::SimReceiver,
    store::SimBackend,
    world::{ENDPOINT, World},
};

/// Who cannot start tries again.
const BETWEEN_STARTS: Duration = Duration::from_secs(1);

/// A place where one life follows another.
#[derive(Debug)]
pub(crate) struct Node {
    world: Arc<World>,
    index: usize,
    running: Mutex<Option<Running>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub life: Arc<Life>,
    pub delivery: Arc<DelayedDelivery>,
}

impl Node {
    pub(crate) fn new(world: Arc<World>, index: usize) -> Self {
        Self { world, index, running: Mutex::default() }
    }

    /// The process that runs here now.
    pub(crate) fn running(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lives, until nothing befalls it any more.
    pub(crate) async fn live(&self) {
        self.start().await;
        let spared = self.world.plan.fates.is_empty() || self.world.state().rng.chance(200);
        while !spared && self.meet_a_fate().await.is_continue() {}
    }

    /// Breaks when nothing more will happen here.
    async fn meet_a_fate(&self) -> ControlFlow<()> {
        let quiet = self.world.state().rng.millis(500..60_000);
        if self.world.elapsed() + quiet >= HEALED {
            return ControlFlow::Break(());
        }
        sleep(quiet).await;
        let fate = self.world.state().rng.pick(&self.world.plan.fates);
        match fate {
            // One node is left to do the work.
            Fate::Death if self.index == 0 => return ControlFlow::Continue(()),
            Fate::Death => {
                self.kill(Injected::Death).await;
                return ControlFlow::Break(());
            }
            Fate::Freeze => {
                let pause = self.world.state().rng.millis(1_000..70_000);
                let pause = pause.min(HEALED.saturating_sub(self.world.elapsed()));
                self.ambush(Ambush::Freeze(pause), Injected::Freeze).await;
                return ControlFlow::Continue(());
            }
            Fate::Crash => self.kill(Injected::Crash).await,
            Fate::Drop => {
                self.ambush(Ambush::Freeze(Duration::from_millis(1)), Injected::Drop).await;
                self.cut_off();
            }
            Fate::Stop => self.stop().await,
        }
        let down = self.world.state().rng.millis(0..15_000);
        sleep(down).await;
        self.start().await;
        self.world.count(Injected::Restart);
        ControlFlow::Continue(())
    }

    /// In the midst of something, or just so.
    async fn kill(&self, what: Injected) {
        let in_the_midst = self.world.state().rng.chance(800);
        let spot = if in_the_midst { self.ambush(Ambush::Kill, what).await } else { None };
        self.world.struck(spot.unwrap_or(Spot::Between));
        self.crash();
    }

    /// Waits until the process is in the midst of something, and lets it happen then. Answers of what.
    async fn ambush(&self, ambush: Ambush, what: Injected) -> Option<Spot> {
        let Running { life, .. } = self.running()?;
        let trigger = self.draw_trigger();
        let patience = HEALED.saturating_sub(self.world.elapsed()).min(Duration::from_secs(30));
        let spot = life.lie_in_wait(trigger, ambush, patience).await?;
        self.world.count(what);
        self.world.disturbed(&life);
        Some(spot)
    }

    fn draw_trigger(&self) -> Trigger {
        let rng = &mut self.world.state().rng;
        if rng.chance(400) {
            return Trigger { passages: rng.within(0..20), spot: None };
        }
        // What is rare is met as often as what is common.
        Trigger { passages: rng.within(0..3), spot: Some(rng.pick(&Spot::all())) }
    }

    async fn start(&self) {
        let world = &self.world;
        let number = world.watch(|bounds, _| bounds.born());
        let life = Arc::new(Life::new(self.index, number));
        let delivery = loop {
            match self.try_to_start(&life).await {
                Ok(delivery) => break Arc::new(delivery),
                Err(StartError::Store(_)) => world.count(Injected::FailedStart),
                Err(error) => panic!("it does not start: {error}"),
            }
            sleep(BETWEEN_STARTS).await;
        };
        world.note(format_args!("{life} starts"));
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(Running { life, delivery });
    }

    async fn try_to_start(&self, life: &Arc<Life>) -> Result<DelayedDelivery, StartError> {
        let world = &self.world;
        let dispatcher = |role| SimDispatcher::new(world.clone(), life.clone(), role);
        let mut settings = world.plan.settings();
        settings.drain_time = world.plan.drain_time;
        if world.has(Planted::OneRetryTooMany) {
            settings.number_of_retries += 1;
        }
        if world.has(Planted::LatenessIgnored) {
            settings.catch_up.maximum_lateness = None;
        }
        let builder = DelayedDelivery::builder(ENDPOINT)
            .store(SimBackend::new(world.clone(), life.clone()))
            .dispatcher(dispatcher(Role::Destinations))
            .error_dispatcher(dispatcher(Role::ErrorQueue))
            .error_queue(Address::new("error").expect("a valid name"))
            .transaction_mode(world.plan.mode())
            .settings(settings)
            .observer(Arc::new(Listener { world: world.clone(), life: life.clone() }));
        if world.plan.pumps {
            let receiver = SimReceiver::new(world.clone(), life.clone());
            return builder.pump(Arc::new(receiver)).start().await;
        }
        builder.start().await
    }

    fn crash(&self) {
        let Some(Running { life, .. }) = self.take() else { return };
        life.kill();
        life.end();
        self.world.record_of(&life, What::Died);
    }

    /// Clients of this process leave first: they share the handle whose drop ends delivery.
    fn cut_off(&self) {
        let Some(Running { life, .. }) = self.take() else { return };
        life.end();
    }

    /// Stops in order. Nothing may be held afterwards.
    pub(crate) async fn stop(&self) {
        let Some(Running { life, delivery }) = self.take() else { return };
        self.world.count(Injected::Stop);
        life.end();
        let mut shared = delivery;
        let delivery = loop {
            match Arc::try_unwrap(shared) {
                Ok(delivery) => break delivery,
                Err(still_shared) => shared = still_shared,
            }
            tokio::task::yield_now().await;
        };
        let begun = self.world.elapsed();
        let stopped = delivery.stop().await;
        self.world.note(format_args!("{life} stopped: {stopped:?}"));
        self.world.record_of(&life, What::Stopped);
        self.world.watch(|bounds, now| bounds.stopped(&life, now.elapsed - begun, now));
    }

    /// The breakers that this node reports as tripped.
    pub(crate) fn tripped(&self) -> Vec<(Arc<Life>, BreakerName)> {
        let tripped = |Running { life, delivery }: Running| {
            delivery.tripped_breakers().into_iter().map(move |breaker| (life.clone(), breaker))
        };
        self.running().map(tripped).into_iter().flatten().collect()
    }
}

/// Passes on what the engine says about itself.
#[derive(Debug)]
struct Listener {
    world: Arc<World>,
    life: Arc<Life>,
}

impl Observer for Listener {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::BreakerTripped { breaker, .. } => {
                match breaker {
                    BreakerName::Store => self.world.count(Injected::StoreBreaker),
                    BreakerName::Fetch => self.world.count(Injected::FetchBreaker),
                    BreakerName::Dispatch(_) => self.world.count(Injected::DispatchBreaker),
                    BreakerName::Receive => self.world.count(Injected::ReceiveBreaker),
                    BreakerName::Recovery => {}
                }
                self.world.watch(|bounds, now| bounds.breaker_tripped(&self.life, breaker, now));
            }
            Event::PossibleDuplicate { id, .. } => self.world.note(format_args!("{id} may come twice")),
            _ => {}
        }
    }
}
