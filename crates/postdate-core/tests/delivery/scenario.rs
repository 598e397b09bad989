//! A running delivery with a destination that does as it is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use postdate_core::{
    Address, Builder, Clock, DelayedDelivery, DispatchError, DispatchErrorKind, Dispatcher, Due, Enlistment,
    Event, Memory, Message, MessageId, Observer, OutgoingMessage, StoreError, TokioClock,
};

/// How a destination behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Unavailable,
    Missing,
    Rejects,
    Panics,
    Hangs,
}

/// What was sent where and when, and what is to happen next time.
#[derive(Debug, Default)]
pub(crate) struct Destinations {
    behaviours: Mutex<BTreeMap<String, Behaviour>>,
    poison: Mutex<BTreeSet<MessageId>>,
    pub(crate) attempts: Mutex<Vec<(MessageId, tokio::time::Instant)>>,
    /// The destinations of the messages of each call.
    pub(crate) calls: Mutex<Vec<Vec<String>>>,
    delivered: Mutex<Vec<(OutgoingMessage, tokio::time::Instant)>>,
}

impl Destinations {
    pub(crate) fn behave(&self, destination: &str, behaviour: impl Into<Option<Behaviour>>) {
        let mut behaviours = self.behaviours.lock().unwrap();
        match behaviour.into() {
            Some(behaviour) => behaviours.insert(destination.to_owned(), behaviour),
            None => behaviours.remove(destination),
        };
    }

    /// This message panics wherever it goes.
    pub(crate) fn poison(&self, id: &str) {
        self.poison.lock().unwrap().insert(MessageId::new(id).unwrap());
    }

    pub(crate) fn delivered(&self, destination: &str) -> Vec<OutgoingMessage> {
        let delivered = self.delivered.lock().unwrap();
        delivered.iter().map(|(m, _)| m).filter(|m| m.destination.as_str() == destination).cloned().collect()
    }

    pub(crate) fn delivered_at(&self, id: &str) -> Option<tokio::time::Instant> {
        let delivered = self.delivered.lock().unwrap();
        delivered.iter().find(|(m, _)| m.id.as_str() == id).map(|(_, at)| *at)
    }

    pub(crate) fn attempts_of(&self, id: &str) -> usize {
        self.attempts.lock().unwrap().iter().filter(|(attempted, _)| attempted.as_str() == id).count()
    }

    async fn one(&self, message: &OutgoingMessage) -> Result<(), DispatchError> {
        let now = tokio::time::Instant::now();
        self.attempts.lock().unwrap().push((message.id.clone(), now));
        assert!(!self.poison.lock().unwrap().contains(&message.id), "planted panic");
        let behaviour = self.behaviours.lock().unwrap().get(message.destination.as_str()).copied();
        let fails = |kind, text: &str| Err(DispatchError::new(kind, text).caused_by("the planted cause"));
        match behaviour {
            Some(Behaviour::Unavailable) => fails(DispatchErrorKind::Unavailable, "it is down"),
            Some(Behaviour::Missing) => fails(DispatchErrorKind::NoDestination, "there is no such queue"),
            Some(Behaviour::Rejects) => fails(DispatchErrorKind::Rejected, "it refuses"),
            Some(Behaviour::Panics) => panic!("planted panic"),
            Some(Behaviour::Hangs) => std::future::pending().await,
            None => {
                self.delivered.lock().unwrap().push((message.clone(), now));
                Ok(())
            }
        }
    }
}

/// Sends to [`Destinations`].
#[derive(Clone, Debug)]
pub(crate) struct ToDestinations(pub(crate) Arc<Destinations>);

#[async_trait]
impl Dispatcher for ToDestinations {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        let destinations = messages.iter().map(|message| message.destination.to_string()).collect();
        self.0.calls.lock().unwrap().push(destinations);
        let mut outcomes = Vec::new();
        for message in messages {
            outcomes.push(self.0.one(message).await);
        }
        outcomes
    }
}

/// Everything that was observed, as text.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Vec<String>>);

impl Observer for Log {
    fn observe(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
}

impl Log {
    pub(crate) fn count(&self, event: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.starts_with(event)).count()
    }
}

/// A running delivery.
pub(crate) struct Scenario {
    pub(crate) destinations: Arc<Destinations>,
    pub(crate) memory: Memory,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<Log>,
    pub(crate) delivery: DelayedDelivery,
}

impl Scenario {
    pub(crate) async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let origin: Timestamp = "2026-12-24T20:00:00Z".parse().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(origin));
        let memory = crate::memory().clock(clock.clone()).build();
        let destinations = Arc::<Destinations>::default();
        let log = Arc::<Log>::default();
        let builder = DelayedDelivery::builder("orders")
            .store(memory.clone())
            .dispatcher(ToDestinations(destinations.clone()))
            .observer(log.clone());
        let delivery = change(builder).start().await.unwrap();
        Self { destinations, memory, clock, log, delivery }
    }

    pub(crate) async fn send(&self, id: &str, destination: &str, seconds: u64) {
        let message =
            Message::new(format!("body of {id}")).id(MessageId::new(id).unwrap()).header("tenant", "acme");
        self.delivery.send(destination, message, Due::after(Duration::from_secs(seconds))).await.unwrap();
    }

    /// Lets so many seconds pass.
    pub(crate) async fn pass(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    pub(crate) async fn pending(&self) -> u64 {
        self.delivery.stats().await.unwrap().pending
    }

    pub(crate) fn ids(&self, destination: &str) -> Vec<String> {
        self.destinations.delivered(destination).iter().map(|m| m.id.to_string()).collect()
    }
}

pub(crate) fn address(name: &str) -> Address {
    Address::new(name).unwrap()
}
