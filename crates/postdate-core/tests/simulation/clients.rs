//! Clients: they delay messages, and sometimes change their minds.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use postdate_core::{
    Address, Cancellation, DelayedMessage, Due, Message, MessageId, Rescheduling, SendError, Sent,
    StoreErrorKind,
};
use postdate_history::{Refusal, What};
use tokio::time::sleep;

use crate::{
    faults::Injected,
    node::{Node, Running},
    plan::{ARCHIVE, BILLING, DESTINATIONS, NOWHERE, Plan, SHIPPING, signed},
    rng::Rng,
    source::{self, timeouts},
    world::{Nature, World},
};

const DAY: u64 = 86_400;
/// How often a client tries to store a message before it gives up; by then half a minute has passed.
const TRIES: u32 = 9;

/// A few pauses of a breaker that has tripped.
const DOUBT: Duration = Duration::from_secs(40);

/// A message and what its sender does with it.
#[derive(Debug)]
pub(crate) struct Letter {
    id: MessageId,
    destination: &'static str,
    nature: Nature,
    /// When it is stored, from the start of the world.
    at: Duration,
    due: When,
    /// What the sender wants so long after it is stored.
    change: Option<(Duration, Change)>,
    home: usize,
    way: Way,
}

/// How a message gets into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    /// Through the queue.
    HandedOver,
}

#[derive(Clone, Copy, Debug)]
enum When {
    After(Duration),
    /// Before or after the moment of sending, by the clock of the sender.
    ByOwnClock(SignedDuration),
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Cancel,
    Reschedule(Duration),
}

/// Clients and the nodes they may call.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub world: Arc<World>,
    pub nodes: Arc<[Arc<Node>]>,
}

impl Letter {
    pub(crate) fn draw(world: &World, number: u64) -> Self {
        let plan = &world.plan;
        let rng = &mut world.state().rng;
        let bad = rng.chance(plan.bad_messages);
        let mut destination = rng.pick(&[BILLING, SHIPPING, SHIPPING, ARCHIVE]);
        let mut nature = Nature::Healthy;
        if bad {
            nature = rng.pick(&[Nature::Poison, Nature::Poison, Nature::Panics, Nature::Homeless]);
        }
        if nature == Nature::Homeless {
            destination = NOWHERE;
        }
        let nodes = plan.nodes as u64;
        let letter = Self {
            id: MessageId::new(format!("{destination}-{number}")).expect("a valid id"),
            destination,
            nature,
            at: rng.millis(0..150_000),
            due: When::draw(rng),
            change: Change::draw(rng),
            home: usize::try_from(rng.within(0..nodes)).expect("a handful of nodes"),
            way: Way::Direct,
        };
        if plan.pumps && rng.chance(600) { letter.handed_over(bad, rng) } else { letter }
    }

    /// The same on its way through the queue, on which more can be wrong with it.
    fn handed_over(mut self, bad: bool, rng: &mut Rng) -> Self {
        self.way = Way::HandedOver;
        if bad && self.nature != Nature::Homeless && rng.chance(700) {
            self.nature = rng.pick(&[Nature::Unreadable, Nature::Never, Nature::BreaksStore]);
            self.change = None;
        }
        if self.nature == Nature::Never {
            self.due = When::After(Duration::MAX);
        }
        self
    }

    fn is_storable(&self) -> bool {
        !matches!(self.nature, Nature::Unreadable | Nature::Never | Nature::BreaksStore)
    }

    /// One to each destination, due at once.
    pub(crate) fn last_ones(plan: &Plan) -> impl Iterator<Item = Self> {
        let direct = |destination| Self::healthy(format!("last-{destination}"), destination, Way::Direct);
        let handed_over = plan.pumps.then(|| Self::healthy("last".to_owned(), SHIPPING, Way::HandedOver));
        DESTINATIONS.into_iter().map(direct).chain(handed_over)
    }

    /// The store takes it, which shows who is to blame for what it does not take.
    pub(crate) fn witness(number: u64) -> Self {
        Self::healthy(format!("witness-{number}"), SHIPPING, Way::HandedOver)
    }

    fn healthy(id: String, destination: &'static str, way: Way) -> Self {
        Self {
            id: MessageId::new(id).expect("a valid id"),
            destination,
            nature: Nature::Healthy,
            at: Duration::ZERO,
            due: When::After(Duration::ZERO),
            change: None,
            home: 0,
            way,
        }
    }

    /// How late it may be while the faults of this world are on.
    fn patience(&self, plan: &Plan) -> Option<SignedDuration> {
        let undisturbed = match self.destination {
            BILLING => plan.billing_outages.is_empty(),
            ARCHIVE => plan.slow_archive == 0 && plan.hanging_archive == 0,
            NOWHERE => false,
            _ => true,
        };
        let patience = plan.patience().filter(|_| undisturbed && self.nature == Nature::Healthy);
        // A store that fails over a message may be away, until another message shows that it is not.
        let for_doubt = match self.way {
            Way::HandedOver if plan.bad_messages > 0 => DOUBT,
            _ => Duration::ZERO,
        };
        patience.map(|patience| signed(patience + for_doubt))
    }

    fn compose(&self, world: &World) -> DelayedMessage {
        let message = Message::new(format!("body of {}", self.id))
            .header("tenant", format!("tenant of {}", self.id))
            .id(self.id.clone());
        let skew = SignedDuration::from_secs(world.skew(self.home));
        let due = match self.due {
            When::After(delay) => Due::after(delay),
            When::ByOwnClock(offset) => {
                if !skew.is_zero() {
                    world.count(Injected::SkewedClock);
                }
                if skew.as_secs() != world.plan.skews[self.home] {
                    world.count(Injected::ProcessClockLeap);
                }
                Due::at(world.now() + skew + offset)
            }
        };
        message.to(Address::new(self.destination).expect("a valid name"), due)
    }
}

impl When {
    fn draw(rng: &mut Rng) -> Self {
        match rng.within(0..10) {
            0..3 => Self::After(Duration::ZERO),
            3..6 => Self::After(rng.millis(0..60_000)),
            6..8 => Self::After(rng.millis(60_000..200_000)),
            8 => Self::After(Duration::from_secs(DAY * rng.pick(&[25, 50, 3_650]))),
            _ => Self::ByOwnClock(SignedDuration::from_secs(rng.pick(&[-7_200, -1, 20]))),
        }
    }
}

impl Change {
    fn draw(rng: &mut Rng) -> Option<(Duration, Self)> {
        let delay = rng.millis(0..40_000);
        match rng.within(0..10) {
            0..2 => Some((delay, Self::Cancel)),
            2..4 => Some((delay, Self::Reschedule(rng.millis(0..30_000)))),
            _ => None,
        }
    }
}

impl Clients {
    /// Stores a message and does with it what its sender wants.
    pub(crate) async fn post(self, letter: Letter) {
        sleep(letter.at).await;
        let message = letter.compose(&self.world);
        self.world.is_a(&letter.id, letter.nature);
        let patience = letter.patience(&self.world.plan);
        let is_stored = match letter.way {
            Way::Direct => {
                self.world.record(What::attempted(&message, patience));
                self.store(&letter, &message).await
            }
            Way::HandedOver => self.hand_over(&letter, message, patience).await,
        };
        if !is_stored {
            return;
        }
        if let Some((after, change)) = letter.change {
            sleep(after).await;
            self.change(&letter, change).await;
        }
    }

    /// Stores it, again with the same id where the answer is lost. Answers whether that worked.
    async fn store(&self, letter: &Letter, message: &DelayedMessage) -> bool {
        for attempt in 0..TRIES {
            let answer = self.at_some_node(letter, async |node| {
                node.delivery.send_batch(std::slice::from_ref(message)).await
            });
            match answer.await {
                Some(Ok(sent)) => {
                    let Sent { id, due, .. } = &sent[0];
                    self.world.record(What::Acknowledged { id: id.to_string(), due: *due });
                    self.world.note(format_args!("{} ACKNOWLEDGED", letter.id));
                    return true;
                }
                Some(Err(SendError::Store(error))) if error.kind() != StoreErrorKind::Unavailable => {
                    self.world.violated("S8", error.to_string());
                    return false;
                }
                _ => self.world.count(Injected::ClientRetry),
            }
            sleep(Duration::from_millis(100 << attempt)).await;
        }
        false
    }

    /// Hands it over to the pumps, again where the answer is lost. Answers whether that worked.
    async fn hand_over(
        &self,
        letter: &Letter,
        message: DelayedMessage,
        patience: Option<SignedDuration>,
    ) -> bool {
        let world = &self.world;
        world.hands_over(&letter.id);
        let mut queued = message.clone().through(timeouts());
        if letter.nature == Nature::Unreadable {
            queued.headers = message.message.headers.clone();
            // It fails as it is in the queue.
            world.record(What::attempted(&DelayedMessage { message: queued.clone(), ..message }, patience));
            world.count(Injected::UnreadableMessage);
        } else {
            world.record(What::attempted(&message, patience));
        }
        if !letter.is_storable() {
            let why = Refusal::NotStorable;
            world.record(What::Refused { id: letter.id.to_string(), why });
        }
        for attempt in 0..TRIES {
            if source::hand_over(world, &queued).is_some() {
                world.record(What::Accepted { id: letter.id.to_string() });
                world.count(Injected::HandOver);
                return true;
            }
            sleep(Duration::from_millis(100 << attempt)).await;
        }
        false
    }

    async fn change(&self, letter: &Letter, change: Change) {
        match change {
            Change::Cancel => {
                let answer = self.at_some_node(letter, async |node| node.delivery.cancel(&letter.id).await);
                match answer.await {
                    Some(Ok(Cancellation::Cancelled)) => self.world.count(Injected::Cancellation),
                    Some(Ok(Cancellation::InFlight)) => self.world.count(Injected::CancellationTooLate),
                    _ => {}
                }
            }
            Change::Reschedule(delay) => {
                let due = Due::after(delay);
                let answer =
                    self.at_some_node(letter, async |node| node.delivery.reschedule(&letter.id, due).await);
                if let Some(Ok(Rescheduling::Rescheduled(_))) = answer.await {
                    self.world.count(Injected::Rescheduling);
                }
            }
        }
    }

    /// Calls the home node of the letter or, if nothing runs there, the next. `None` if none runs or the
    /// process goes away during the call.
    async fn at_some_node<T>(&self, letter: &Letter, call: impl AsyncFnOnce(&Running) -> T) -> Option<T> {
        let (before, from_home) = self.nodes.split_at(letter.home);
        let running = from_home.iter().chain(before).find_map(|node| node.running())?;
        tokio::select! {
            biased;
            () = running.life.ended() => None,
            answer = call(&running) => Some(answer),
        }
    }
}
