//! Destinations that are down, slow, gone or choosy, and the error queue.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use postdate_core::{
    Address, DispatchError, DispatchErrorKind, Dispatcher, Enlistment, OutgoingMessage, StoreError,
};
use tokio::time::sleep;

use crate::{
    faults::{Injected, Planted},
    life::Life,
    oracle::Nature,
    plan::{ARCHIVE, BILLING, NOWHERE, SEND_TIME_LIMIT},
    world::World,
};

/// The way of one process to the destinations.
#[derive(Debug)]
pub(crate) struct SimDispatcher {
    world: Arc<World>,
    life: Arc<Life>,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Destinations,
    ErrorQueue,
}

/// A call that is under way. When it is given up, the destination counts as not reached.
struct Underway<'a> {
    dispatcher: &'a SimDispatcher,
    destination: Address,
    answered: bool,
}

type Outcome = Result<(), DispatchError>;

impl SimDispatcher {
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>, role: Role) -> Self {
        Self { world, life, role }
    }

    /// How long the call takes before and after the destination acts.
    fn latencies(&self, destination: &Address) -> [Duration; 2] {
        let (world, plan) = (&self.world, &self.world.plan);
        let archive = destination.as_str() == ARCHIVE;
        let mut latencies = {
            let mut state = world.state();
            [state.rng.millis(0..10), state.rng.millis(0..10)]
        };
        let hangs = match self.role {
            Role::ErrorQueue => world.strikes(plan.hanging_error_queue, Injected::HangingErrorQueue),
            Role::Destinations => {
                archive && world.strikes(plan.hanging_archive, Injected::HangingDestination)
            }
        };
        let slow = archive && world.strikes(plan.slow_archive, Injected::SlowDestination);
        if hangs || slow {
            let mut state = world.state();
            // Before or after acting: a sender that gives up does not know which.
            let side = usize::from(state.rng.chance(500));
            let limit = SEND_TIME_LIMIT;
            latencies[side] =
                if hangs { limit + state.rng.seconds(1..20) } else { state.rng.millis(1_000..9_000) };
        }
        latencies
    }

    fn is_down(&self, destination: &Address) -> bool {
        let (at, plan) = (self.world.elapsed(), &self.world.plan);
        let (down, outage) = match self.role {
            Role::ErrorQueue => (plan.error_queue_outages.cover(at), Injected::ErrorQueueOutage),
            Role::Destinations => {
                let down = destination.as_str() == BILLING && plan.billing_outages.cover(at);
                (down, Injected::DestinationOutage)
            }
        };
        if down {
            self.world.count(outage);
        }
        down
    }

    /// What the destination does with one message.
    fn act(&self, message: &OutgoingMessage) -> Outcome {
        if self.is_down(&message.destination) {
            let burns = self.world.has(Planted::OutageBurnsRetries) && self.role == Role::Destinations;
            let kind = if burns { DispatchErrorKind::Rejected } else { DispatchErrorKind::Unavailable };
            return Err(DispatchError::new(kind, "it is down"));
        }
        if self.role == Role::ErrorQueue {
            self.world.count(Injected::MoveToErrorQueue);
            self.world.note(format_args!("{} moved to the error queue by {}", message.id, self.life));
            self.world.judge(|oracle, now| oracle.moved(message, now));
            return Ok(());
        }
        if message.destination.as_str() == NOWHERE {
            self.world.count(Injected::MissingDestination);
            return Err(DispatchError::new(DispatchErrorKind::NoDestination, "there is no such queue"));
        }
        if self.nature(message) == Some(Nature::Poison) {
            self.world.count(Injected::Rejection);
            return Err(DispatchError::new(DispatchErrorKind::Rejected, "it is refused"));
        }
        self.world.note(format_args!("{} SENT by {}", message.id, self.life));
        self.world.judge(|oracle, now| oracle.delivered(message, now));
        Ok(())
    }

    fn nature(&self, message: &OutgoingMessage) -> Option<Nature> {
        self.world.judge(|oracle, _| oracle.nature(&message.id))
    }

    /// Some messages break the dispatcher itself, after it has sent those that stand before them.
    fn panics_at(&self, message: &OutgoingMessage, alone: bool) {
        if self.role == Role::Destinations && self.nature(message) == Some(Nature::Panics) {
            self.world.count(Injected::DispatcherPanic);
            self.world.judge(|oracle, _| oracle.panicked(&message.id, alone));
            std::panic::resume_unwind(Box::new("it breaks the dispatcher"));
        }
    }

    /// Some outcomes are lost on the way back: the destination has the message, the sender does not know.
    fn lose_some(&self, outcomes: Vec<Outcome>) -> Vec<Outcome> {
        let lost = self.world.plan.lost_acknowledgements;
        let lose = |outcome: Outcome| {
            if self.world.strikes(lost, Injected::LostAcknowledgement) {
                return Err(DispatchError::new(DispatchErrorKind::Unavailable, "the connection broke"));
            }
            outcome
        };
        outcomes.into_iter().map(lose).collect()
    }

    fn acknowledge_unwritten(&self, messages: &[OutgoingMessage]) -> Vec<Outcome> {
        let later = Self::new(self.world.clone(), self.life.clone(), self.role);
        let behind = messages.to_vec();
        tokio::spawn(async move {
            sleep(Duration::from_millis(50)).await;
            behind.iter().for_each(|message| drop(later.act(message)));
        });
        messages.iter().map(|_| Ok(())).collect()
    }
}

#[async_trait]
impl Dispatcher for SimDispatcher {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(&self, messages: &[OutgoingMessage], _: Option<Enlistment<'_>>) -> Vec<Outcome> {
        if self.role == Role::ErrorQueue && self.world.has(Planted::ErrorPathRemovesFirst) {
            return self.acknowledge_unwritten(messages);
        }
        let Some(first) = messages.first() else { return Vec::new() };
        let mut call = Underway { dispatcher: self, destination: first.destination.clone(), answered: false };
        self.world.judge(|oracle, now| oracle.sending(&self.life, messages, now));
        self.life.passes().await;
        let [there, back] = self.latencies(&call.destination);
        sleep(there).await;
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            self.panics_at(message, messages.len() == 1);
            outcomes.push(self.act(message));
            // A sender that goes away now leaves some sent and some not.
            let pause = self.world.state().rng.chance(100);
            if pause {
                sleep(Duration::from_millis(1)).await;
            }
        }
        sleep(back).await;
        self.life.passes().await;
        let outcomes = self.lose_some(outcomes);
        call.answered = true;
        self.world.judge(|oracle, now| oracle.told(&self.life, messages, &outcomes, now));
        outcomes
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let SimDispatcher { world, life, .. } = self.dispatcher;
        if !self.answered {
            world.judge(|oracle, now| oracle.unreached(life, &self.destination, now));
        }
    }
}
