//! The pump: from a queue into the store.
//!
//! [`Intake`] decides, this loop performs: receive, wait. Every received batch is stored by a task of its own, one at
//! a time; what cannot be stored waits there for the error queue, under the lock of its batch.

mod batch;
mod lock;
mod quarantine;

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinError, JoinSet},
};

use batch::{Note, defer};

use crate::{
    BreakerName, DeferralFormat, Event, Operation, ReceivedBatch, Receiver, Selection, StoreError,
    engine::{
        AFTER_PANIC, Calls, Context, Drain, Heard, Storing, call, changed, hear, now, sleep_until, stopped,
    },
    machine::intake::{self, Action, Intake},
};

/// A queue and how its messages are read.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub receiver: Arc<dyn Receiver>,
    pub format: Arc<dyn DeferralFormat>,
}

/// What the loop and the batches share.
#[derive(Debug)]
struct Shared {
    context: Arc<Context>,
    storing: Arc<Storing>,
    source: Source,
    queue_calls: Calls,
    /// Where messages stand that were not stored, by their own fault or the store's: that is not known yet. With
    /// each, how often the store had taken others when that began.
    in_doubt: Mutex<BTreeMap<u64, u64>>,
    /// Of those, the one that was tried last because there was no other message.
    last_doubted: AtomicU64,
}

/// Runs until it is told to stop and everything under way has ended or the drain time is over. Answers how many
/// batches were cut off.
pub(crate) async fn run(
    context: Arc<Context>,
    storing: Arc<Storing>,
    source: Source,
    stop: watch::Receiver<bool>,
) -> usize {
    let (note_sender, notes) = mpsc::unbounded_channel();
    let intake = Intake::new(&context.settings);
    let time_to_trigger = context.settings.time_to_trigger_fetch_circuit_breaker;
    let queue_calls = Calls::new(BreakerName::Receive, Operation::Receive, time_to_trigger);
    let (in_doubt, last_doubted) = (Mutex::default(), AtomicU64::new(0));
    let shared = Arc::new(Shared { context, storing, source, queue_calls, in_doubt, last_doubted });
    let (batches, waiting, ended, drain) = (JoinSet::new(), Vec::new(), None, Drain::NotYet);
    Pump { shared, intake, stop, batches, notes, note_sender, waiting, ended, drain }.run().await
}

struct Pump {
    shared: Arc<Shared>,
    intake: Intake,
    stop: watch::Receiver<bool>,
    batches: JoinSet<()>,
    notes: mpsc::UnboundedReceiver<Note>,
    note_sender: mpsc::UnboundedSender<Note>,
    /// Batches that are stored, with the number of their messages that wait for the error queue.
    waiting: Vec<(Id, usize)>,
    /// A batch that ended, whose note comes first.
    ended: Option<Result<(Id, ()), JoinError>>,
    drain: Drain,
}

impl Shared {
    /// A call to the queue failed. Answers how long to leave it alone.
    fn queue_failed(&self, operation: Operation, error: &StoreError) -> Duration {
        self.queue_calls.failed(&self.context.reporter, operation, error)
    }

    fn in_doubt(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call to the queue succeeded.
    fn queue_answered(&self, operation: Operation) {
        self.queue_calls.answered(&self.context.reporter, operation);
    }
}

impl Pump {
    async fn run(mut self) -> usize {
        let mut event = intake::Event::Go;
        loop {
            event = match self.intake.step(now(), event) {
                Action::Receive { limit } => self.receive(limit).await,
                Action::Wait { until, wakeable } => match self.wait(until, wakeable).await {
                    Some(event) => event,
                    None => return self.cut_off().await,
                },
                Action::Finished => return 0,
            };
        }
    }

    async fn receive(&mut self, limit: NonZeroUsize) -> intake::Event {
        self.shared.context.time_passed();
        let selection = Selection::Next(limit);
        let receive = self.shared.source.receiver.try_receive(&selection);
        match call(&mut self.stop, Operation::Receive, receive).await {
            None => self.stopping(),
            Some(Ok(batch)) => {
                self.shared.queue_answered(Operation::Receive);
                self.take(batch)
            }
            Some(Err(error)) => {
                intake::Event::Failed { pause: self.shared.queue_failed(Operation::Receive, &error) }
            }
        }
    }

    fn take(&mut self, batch: ReceivedBatch) -> intake::Event {
        let count = batch.messages.len();
        if count > 0 {
            self.shared.context.reporter.report(Event::Received { count });
            let (shared, stop, notes) = (self.shared.clone(), self.stop.clone(), self.note_sender.clone());
            self.batches.spawn(defer(shared, batch, stop, notes));
        }
        intake::Event::Received { count }
    }

    fn stopping(&mut self) -> intake::Event {
        self.drain.begin(self.shared.context.settings.drain_time);
        intake::Event::Stop
    }

    /// Waits for something to happen. `None` when the drain time is over.
    async fn wait(&mut self, until: Option<Instant>, wakeable: bool) -> Option<intake::Event> {
        let (draining, until) = match self.drain {
            Drain::NotYet => (false, until),
            Drain::Until(end) => (true, end),
        };
        tokio::select! {
            biased;
            () = stopped(&mut self.stop), if !draining => Some(self.stopping()),
            heard = hear(&mut self.notes, &mut self.batches, &mut self.ended) => Some(match heard {
                Heard::Note(note) => self.noted(note),
                Heard::End(ended) => self.ended(ended),
            }),
            () = sleep_until(until) => (!draining).then_some(intake::Event::Go),
            () = changed("the queue", self.shared.source.receiver.changed()), if wakeable => {
                Some(intake::Event::Woken)
            }
        }
    }

    fn noted(&mut self, Note { batch, away, waiting }: Note) -> intake::Event {
        self.waiting.push((batch, waiting));
        intake::Event::Stored { away, waiting }
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) -> intake::Event {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == id);
        let waited = place.map(|place| self.waiting.swap_remove(place).1);
        match ended {
            Ok(_) => intake::Event::Ended { waited },
            Err(error) => {
                tracing::error!(%error, "storing a batch panicked; its messages were given back");
                let context = &self.shared.context;
                context.gates().undecided(&context.error_queue, now());
                intake::Event::Panicked { waited, pause: AFTER_PANIC }
            }
        }
    }

    async fn cut_off(mut self) -> usize {
        let count = self.batches.len();
        self.batches.shutdown().await;
        count
    }
}
