//! Destinations that are down, slow, gone or choosy, and the error queue.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use postdate_core::{
    Address, DispatchError, DispatchErrorKind, Dispatcher, Enlistment, OutgoingMessage, StoreError,
};
use postdate_history::{Outcome, Refusal, Way, What};
use tokio::time::sleep;

use crate::{
    faults::{Injected, Planted},
    life::{Life, Side, Spot},
    plan::{ARCHIVE, BILLING, NOWHERE, SEND_TIME_LIMIT},
    transaction::SimTransaction,
    world::{Nature, World},
};

/// The way of one process to the destinations.
#[derive(Debug)]
pub(crate) struct SimDispatcher {
    world: Arc<World>,
    life: Arc<Life>,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

type Sent = Result<(), DispatchError>;

impl SimDispatcher {
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>, role: Role) -> Self {
        Self { world, life, role }
    }

    fn way(&self) -> Way {
        match self.role {
            Role::Destinations => Way::Destination,
            Role::ErrorQueue => Way::ErrorQueue,
        }
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

    /// What the destination does with one message, at once or when a transaction commits.
    fn act(&self, message: &OutgoingMessage, within: Option<&mut SimTransaction>) -> Sent {
        if self.is_down(&message.destination) {
            let burns = self.world.has(Planted::OutageBurnsRetries) && self.role == Role::Destinations;
            let kind = if burns { DispatchErrorKind::Rejected } else { DispatchErrorKind::Unavailable };
            return Err(DispatchError::new(kind, "it is down"));
        }
        if self.role == Role::ErrorQueue {
            self.world.count(Injected::MoveToErrorQueue);
            self.world.note(format_args!("{} moved to the error queue by {}", message.id, self.life));
            self.take(message, within);
            return Ok(());
        }
        if message.destination.as_str() == NOWHERE {
            self.world.count(Injected::MissingDestination);
            self.refuse(message, Refusal::NoDestination);
            return Err(DispatchError::new(DispatchErrorKind::NoDestination, "there is no such queue"));
        }
        if self.world.nature(&message.id) == Some(Nature::Poison) {
            self.world.count(Injected::Rejection);
            self.refuse(message, Refusal::Rejected);
            return Err(DispatchError::new(DispatchErrorKind::Rejected, "it is refused"));
        }
        self.world.note(format_args!("{} SENT by {}", message.id, self.life));
        self.take(message, within);
        Ok(())
    }

    fn take(&self, message: &OutgoingMessage, within: Option<&mut SimTransaction>) {
        let mut now = SimTransaction::default();
        within
            .filter(|_| !self.world.has(Planted::SendOutsideTransaction))
            .unwrap_or(&mut now)
            .send(message, self.way());
        self.world.take_effect(now);
    }

    fn refuse(&self, message: &OutgoingMessage, why: Refusal) {
        self.world.record(What::Refused { id: message.id.to_string(), why });
    }

    /// Some messages break the dispatcher itself, after it has sent those that stand before them.
    fn panics_at(&self, message: &OutgoingMessage, alone: bool) {
        if self.role == Role::Destinations && self.world.nature(&message.id) == Some(Nature::Panics) {
            self.world.count(Injected::DispatcherPanic);
            self.refuse(message, Refusal::Rejected);
            // An attempt, if nothing else was sent with it.
            if alone {
                let outcomes = vec![(message.id.to_string(), Outcome::Refused)];
                self.world.record_of(&self.life, What::Told { outcomes });
            }
            std::panic::resume_unwind(Box::new("it breaks the dispatcher"));
        }
    }

    /// Some outcomes are lost on the way back: the destination has the message, the sender does not know.
    fn lose_some(&self, outcomes: Vec<Sent>) -> Vec<Sent> {
        let lost = self.world.plan.lost_acknowledgements;
        let lose = |outcome: Sent| {
            if self.world.strikes(lost, Injected::LostAcknowledgement) {
                return Err(DispatchError::new(DispatchErrorKind::Unavailable, "the connection broke"));
            }
            outcome
        };
        outcomes.into_iter().map(lose).collect()
    }

    fn acknowledge_unwritten(&self, messages: &[OutgoingMessage]) -> Vec<Sent> {
        let later = Self::new(self.world.clone(), self.life.clone(), self.role);
        let behind = messages.to_vec();
        tokio::spawn(async move {
            sleep(Duration::from_millis(50)).await;
            behind.iter().for_each(|message| drop(later.act(message, None)));
        });
        messages.iter().map(|_| Ok(())).collect()
    }
}

#[async_trait]
impl Dispatcher for SimDispatcher {
    async fn joins(&self, mut transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        SimTransaction::of(&mut transaction);
        Ok(true)
    }

    async fn dispatch(&self, messages: &[OutgoingMessage], mut within: Option<Enlistment<'_>>) -> Vec<Sent> {
        if self.role == Role::ErrorQueue && self.world.has(Planted::ErrorPathRemovesFirst) {
            return self.acknowledge_unwritten(messages);
        }
        let Some(first) = messages.first() else { return Vec::new() };
        let mut call = Underway { dispatcher: self, destination: first.destination.clone(), answered: false };
        self.world.record_of(&self.life, What::sending(messages, self.way()));
        self.life.passes(Spot::Send(self.role, Side::Before)).await;
        let [there, back] = self.latencies(&call.destination);
        sleep(there).await;
        self.life.reaches(Spot::Send(self.role, Side::During));
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            self.panics_at(message, messages.len() == 1);
            outcomes.push(self.act(message, within.as_mut().map(SimTransaction::of)));
            // A sender that goes away now leaves some sent and some not.
            let pause = self.world.state().rng.chance(100);
            if pause {
                sleep(Duration::from_millis(1)).await;
            }
        }
        sleep(back).await;
        self.life.passes(Spot::Send(self.role, Side::After)).await;
        // What is in the transaction is not lost on any way.
        let outcomes = if within.is_some() { outcomes } else { self.lose_some(outcomes) };
        call.answered = true;
        self.world.record_of(&self.life, What::told(messages, &outcomes));
        self.world.watch(|bounds, now| bounds.told(&self.life, &call.destination, &outcomes, now));
        outcomes
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let SimDispatcher { world, life, .. } = self.dispatcher;
        if !self.answered {
            world.watch(|bounds, now| bounds.unreached(life, &self.destination, now));
        }
    }
}
