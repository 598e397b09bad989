//! A pump between a queue and a store that do as they are told, beside a delivery of its own.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use jiff::Timestamp;
use postdate_core::{
    Backend as _, Builder, Clock, DelayedMessage, DelayedMessageStore, Due, EndpointName, Headers, Memory,
    MemoryQueues, Message, MessageId, OutgoingMessage, Pump, QueuedMessage, Queues as _, Selection, Settings,
    TokioClock, TransactionMode,
};

use super::queue::{QueueTrouble, TroubledQueue};
use crate::{
    scenario::{Destinations, Log, ToDestinations, address},
    troubled::{Trouble, Troubled},
};

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const BATCH: usize = 20;

pub(super) struct Scene {
    pub(super) memory: Memory,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) queues: MemoryQueues,
    pub(super) queue: Arc<QueueTrouble>,
    pub(super) trouble: Arc<Trouble>,
    /// Only the error queue is of interest.
    pub(super) destinations: Arc<Destinations>,
    pub(super) log: Arc<Log>,
    pub(super) store: Arc<dyn DelayedMessageStore>,
    pump: Option<Pump>,
}

impl Scene {
    /// A scene whose pump does not run yet.
    pub(super) async fn quiet() -> Self {
        let origin: Timestamp = "2026-12-24T20:00:00Z".parse().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(origin));
        let memory = Memory::builder().clock(clock.clone()).lease(LEASE).build();
        let queues = memory.queues();
        queues.create(&timeouts()).await.unwrap();
        let endpoint = EndpointName::new("orders").unwrap();
        memory.set_up(&endpoint).await.unwrap();
        let store = memory.open(&endpoint, TransactionMode::None).await.unwrap();
        Self {
            memory,
            clock,
            queues,
            queue: Arc::default(),
            trouble: Arc::default(),
            destinations: Arc::default(),
            log: Arc::default(),
            store,
            pump: None,
        }
    }

    pub(super) async fn start() -> Self {
        let mut scene = Self::quiet().await;
        scene.restart().await;
        scene
    }

    /// Cuts the pump off, if one runs, and starts another.
    pub(super) async fn restart(&mut self) {
        self.pump = None;
        let started = self.builder().await.start_pump().await;
        self.pump = Some(started.unwrap());
    }

    pub(super) async fn builder(&self) -> Builder {
        let receiver = self.queues.receiver(&timeouts()).await.unwrap();
        let mut settings = Settings::default();
        settings.batch_size = NonZeroUsize::new(BATCH).unwrap();
        Pump::builder("orders")
            .store(Troubled(self.memory.clone(), self.trouble.clone()))
            .pump(Arc::new(TroubledQueue(receiver, self.queue.clone())))
            .error_dispatcher(ToDestinations(self.destinations.clone()))
            .settings(settings)
            .observer(self.log.clone())
    }

    pub(super) fn pump(&self) -> &Pump {
        self.pump.as_ref().unwrap()
    }

    /// Cuts the pump off.
    pub(super) fn crash(&mut self) {
        self.pump = None;
    }

    pub(super) async fn hand_over(&self, id: &str, due: Due) {
        self.put(message(id, due).through(timeouts())).await;
    }

    /// Hands over a message of the queue's own making.
    pub(super) async fn put_with(&self, id: &str, headers: &[(&str, &str)]) {
        let mut message = message(id, Due::NOW).message;
        message.destination = timeouts();
        message.headers = headers.iter().copied().collect::<Headers>().encode();
        self.put(message).await;
    }

    pub(super) async fn put(&self, message: OutgoingMessage) {
        for sent in self.queues.dispatcher().dispatch(&[message], None).await {
            sent.unwrap();
        }
    }

    pub(super) async fn pass(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// How many messages are in the queue, held ones too.
    pub(super) async fn depth(&self) -> u64 {
        self.queues.list().await.unwrap()[0].depth
    }

    /// Takes what is free in the queue, looks at it and gives it back.
    pub(super) async fn free(&self) -> Vec<QueuedMessage> {
        let receiver = self.queues.receiver(&timeouts()).await.unwrap();
        receiver.try_receive(&Selection::Next(NonZeroUsize::MAX)).await.unwrap().messages
    }

    pub(super) async fn stored(&self) -> u64 {
        self.store.stats().await.unwrap().pending
    }

    pub(super) async fn due(&self, id: &str) -> Option<Timestamp> {
        let stored = self.store.get(&MessageId::new(id).unwrap()).await.unwrap();
        stored.map(|stored| stored.message.due)
    }

    /// What is in the error queue, in the order of ids.
    pub(super) fn failed(&self) -> Vec<OutgoingMessage> {
        let mut failed = self.destinations.delivered("error");
        failed.sort_by(|a, b| a.id.cmp(&b.id));
        failed
    }

    pub(super) fn failed_ids(&self) -> Vec<String> {
        self.failed().iter().map(|message| message.id.to_string()).collect()
    }
}

pub(super) fn timeouts() -> postdate_core::Address {
    EndpointName::new("orders").unwrap().timeouts_queue()
}

pub(super) fn message(id: &str, due: Due) -> DelayedMessage {
    let message =
        Message::new(format!("body of {id}")).id(MessageId::new(id).unwrap()).header("tenant", "acme");
    message.to(address("billing"), due)
}

pub(super) fn after(seconds: u64) -> Due {
    Due::after(Duration::from_secs(seconds))
}
