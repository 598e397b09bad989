//! The way to the store or the queue and back, on which anything may be lost.

use std::{sync::Arc, time::Duration};

use postdate_core::{Operation, StoreError, StoreErrorKind};
use tokio::time::sleep;

use crate::{
    bounds::is_of_clients,
    faults::Injected,
    life::{Life, Side, Spot},
    world::World,
};

/// The connection of one process to the store or the queue.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub world: Arc<World>,
    pub life: Arc<Life>,
    pub to: To,
}

/// Where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Store,
    Queue,
}

/// What was done at the other end, and whether the caller gets to know.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Came(T),
    Lost(T),
}

impl<T> Answer<T> {
    /// For calls that leave nothing behind but their effect.
    pub(crate) fn or_lost(self, operation: Operation) -> Result<T, StoreError> {
        match self {
            Self::Came(answer) => Ok(answer),
            Self::Lost(_) => Err(unreachable(operation)),
        }
    }
}

impl Wire {
    /// Calls the other end: latency, the effect as a whole or not at all, latency, the answer or none.
    pub(crate) async fn call<T: Send>(
        &self,
        operation: Operation,
        effect: impl FnOnce() -> Result<T, StoreError> + Send,
    ) -> Result<Answer<T>, StoreError> {
        let Self { world, life, to } = self;
        life.passes(Spot::Call(operation, Side::Before)).await;
        world.watch(|bounds, now| bounds.called(life, *to, operation, self.is_cut(), now));
        let [there, back] = self.latencies();
        sleep(there).await;
        life.reaches(Spot::Call(operation, Side::During));
        let failing = world.plan.failing_calls;
        let done = if self.is_cut() {
            world.count(match to {
                To::Store => Injected::StoreOutage,
                To::Queue => Injected::QueueOutage,
            });
            Err(unreachable(operation))
        } else if world.strikes(failing, Injected::CallFailedBeforeCommit) {
            Err(unreachable(operation))
        } else {
            world.by_the_clock_of(life, effect)
        };
        sleep(back).await;
        life.passes(Spot::Call(operation, Side::After)).await;
        let answer = match done {
            Ok(done) if world.strikes(failing, Injected::AnswerLostAfterCommit) => Ok(Answer::Lost(done)),
            Ok(done) => Ok(Answer::Came(done)),
            Err(error) => Err(error),
        };
        // A message that is refused proves that the store is there.
        let reached = match &answer {
            Ok(answer) => matches!(answer, Answer::Came(_)),
            Err(error) => error.blames_message(),
        };
        world.note(format_args!("{life} {operation}: {}", if reached { "done" } else { "failed" }));
        world.watch(|bounds, now| bounds.answered(life, *to, operation, reached, now));
        if !reached && !is_of_clients(operation) {
            world.disturbed(life);
        }
        answer
    }

    /// Whether nothing gets through.
    pub(crate) fn is_cut(&self) -> bool {
        let outages = match self.to {
            To::Store => &self.world.plan.store_outages,
            To::Queue => &self.world.plan.queue_outages,
        };
        outages.cover(self.world.elapsed())
    }

    fn latencies(&self) -> [Duration; 2] {
        let slowest =
            if self.world.strikes(self.world.plan.slow_calls, Injected::SlowStore) { 1_500 } else { 8 };
        let mut state = self.world.state();
        [state.rng.millis(0..slowest), state.rng.millis(0..slowest)]
    }
}

pub(crate) fn unreachable(operation: Operation) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, operation, "simulation", "it cannot be reached")
}
