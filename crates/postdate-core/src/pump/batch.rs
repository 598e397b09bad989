//! Storing one batch: store, then take from the queue.

use std::{
    num::NonZeroUsize,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::{mpsc, watch},
    task::Id,
};

use super::{Shared, lock::Lock, quarantine::Quarantine};
use crate::{
    DelayedMessage, Due, DueMessage, Event, NotDeferred, Operation, OutgoingMessage, QueuedMessage,
    ReceivedBatch, StoreError, StoreErrorKind,
    engine::{self, DistantClock, Unstored},
    machine::{Attempt, Sift, Sifted, intake::Away},
};

/// So many messages are looked past for one that shows whether the store or they are to blame.
const MOST_IN_DOUBT: usize = 1_000;

/// A message that was there and is gone when it is looked at comes again after so long.
const GONE: Duration = Duration::from_millis(50);

/// What a batch tells the loop: it is stored as far as it can be.
#[derive(Debug)]
pub(super) struct Note {
    pub batch: Id,
    /// The store did not take some of it, by no fault of theirs.
    pub away: Option<Away>,
    /// So many messages wait for the error queue.
    pub waiting: usize,
}

/// A batch on its way.
struct Batch {
    shared: Arc<Shared>,
    lock: Lock,
    stop: watch::Receiver<bool>,
    /// New ones, and then those that are in doubt.
    messages: Vec<DelayedMessage>,
    fresh: usize,
    /// One for each of them.
    origins: Vec<Origin>,
    quarantine: Quarantine,
    away: Option<Away>,
}

/// Where a message to be stored comes from.
#[derive(Debug)]
struct Origin {
    position: u64,
    enqueued: Timestamp,
    received: Timestamp,
    /// As the message says it: a delay counts from its arrival in the queue.
    due: Due,
    came_before: bool,
}

/// Stores a batch.
pub(super) async fn defer(
    shared: Arc<Shared>,
    received: ReceivedBatch,
    stop: watch::Receiver<bool>,
    notes: mpsc::UnboundedSender<Note>,
) {
    let ReceivedBatch { messages, claim } = received;
    let clock = claim.received().map(DistantClock::showing);
    let mut batch = Batch {
        lock: Lock::new(shared.clone(), claim),
        shared,
        stop,
        messages: Vec::with_capacity(messages.len()),
        fresh: 0,
        origins: Vec::with_capacity(messages.len()),
        quarantine: Quarantine::default(),
        away: None,
    };
    let (mut in_doubt, fresh): (Vec<_>, Vec<_>) = {
        let in_doubt = batch.shared.in_doubt();
        messages.into_iter().partition(|queued| in_doubt.contains_key(&queued.position))
    };
    // Where nothing else is there one of them is tried: each time another one.
    let last = batch.shared.last_doubted.load(Relaxed);
    let next = in_doubt.partition_point(|queued| queued.position <= last) % in_doubt.len().max(1);
    in_doubt.rotate_left(next);
    if let (Some(first), true) = (in_doubt.first(), fresh.is_empty()) {
        batch.shared.last_doubted.store(first.position, Relaxed);
    }
    fresh.into_iter().for_each(|queued| batch.read(queued, clock));
    batch.fresh = batch.messages.len();
    in_doubt.into_iter().for_each(|queued| batch.read(queued, clock));
    batch.store().await;
    let Batch { shared, mut lock, stop, quarantine, away, messages, origins, .. } = batch;
    // What waits for the error queue may wait for long; the others need not stay in memory with it.
    drop((messages, origins));
    // The loop may be gone already; then nobody needs to know.
    let _ = notes.send(Note { batch: tokio::task::id(), away, waiting: quarantine.len() });
    quarantine.empty(&shared.context, &mut lock, stop).await;
}

impl Batch {
    fn read(&mut self, queued: QueuedMessage, clock: Option<DistantClock>) {
        let QueuedMessage { position, enqueued, .. } = queued;
        let received = clock.map_or(enqueued, |clock| clock.now());
        let format = &self.shared.source.format;
        let read = catch_unwind(AssertUnwindSafe(|| format.read(&queued)));
        match read.unwrap_or_else(|_| Err(NotDeferred::new("reading it panicked"))) {
            Ok(DelayedMessage { message, due }) => {
                let waited = engine::lateness(received, enqueued);
                let left = match due {
                    Due::After(delay) => Due::After(delay.saturating_sub(waited)),
                    Due::At(_) => due,
                };
                let came_before = queued.deliveries > 0;
                self.messages.push(DelayedMessage { message, due: left });
                self.origins.push(Origin { position, enqueued, received, due, came_before });
            }
            // It failed on its way to where it is.
            Err(error) => {
                let message = DueMessage { message: queued.message, due: enqueued, failures: 0 };
                self.quarantine.add(position, message, &error, received);
            }
        }
    }

    /// Stores what can be stored, takes that from the queue, and puts aside what the store refuses.
    async fn store(&mut self) {
        let mut sift = Sift::new(self.fresh, self.messages.len() - self.fresh);
        while let Some(range) = sift.next().filter(|_| !*self.stop.borrow())
            && let Some(attempt) = self.attempt(range).await
        {
            sift.note(attempt);
        }
        let Sifted { stored, refused, left, doubt } = sift.finish();
        let left: Vec<u64> = left.iter().map(|place| self.origins[*place].position).collect();
        if !stored.is_empty() {
            self.shared.in_doubt().clear();
        } else if let Some(Unstored { error, pause }) = doubt {
            // Only another message can show whether it was the fault of these.
            let probe = left.len().saturating_add(1).min(MOST_IN_DOUBT);
            self.doubt(&left);
            self.blame_store(&error, pause, NonZeroUsize::new(probe).unwrap_or(NonZeroUsize::MIN));
        }
        self.complete(&stored).await;
        for (place, Unstored { error, .. }) in refused {
            let Origin { position, enqueued, received, due, .. } = self.origins[place];
            let due = due.resolve(enqueued).unwrap_or(Timestamp::MAX);
            let message = DueMessage { message: self.messages[place].message.clone(), due, failures: 0 };
            self.quarantine.add(position, message, &error, received);
        }
        self.lock.give_back(&left).await;
    }

    /// Stores some messages, all or none. `None` if the lock on them ends before.
    async fn attempt(&mut self, range: Range<usize>) -> Option<Attempt<Unstored>> {
        let storing = self.shared.storing.store(&self.messages[range.clone()]);
        let Err(unstored) = self.lock.keep(storing).await? else {
            return Some(Attempt::Stored);
        };
        let error = &unstored.error;
        if error.kind() == StoreErrorKind::Conflict
            && range.len() == 1
            && self.origins[range.start].came_before
        {
            return self.compare(range.start, unstored).await;
        }
        Some(match error.kind() {
            _ if error.blames_message() => Attempt::Refused(unstored),
            StoreErrorKind::Other | StoreErrorKind::Corrupt if self.is_to_blame(&range) => {
                Attempt::Refused(unstored)
            }
            StoreErrorKind::Other | StoreErrorKind::Corrupt => Attempt::Unclear(unstored),
            _ => {
                self.blame_store(error, unstored.pause, NonZeroUsize::MIN);
                Attempt::Away
            }
        })
    }

    /// Whether a message failed before, and the store took others since.
    fn is_to_blame(&self, range: &Range<usize>) -> bool {
        let position = self.origins[range.start].position;
        let before = self.shared.in_doubt().get(&position).copied();
        range.len() == 1 && before.is_some_and(|before| self.shared.storing.successes() > before)
    }

    fn doubt(&self, left: &[u64]) {
        let (now, mut in_doubt) = (self.shared.storing.successes(), self.shared.in_doubt());
        *in_doubt =
            left.iter().map(|position| (*position, *in_doubt.get(position).unwrap_or(&now))).collect();
    }

    /// A message that was received before may be stored already, and somebody may have given it another due time
    /// since: that is no conflict.
    async fn compare(&mut self, place: usize, conflict: Unstored) -> Option<Attempt<Unstored>> {
        let (store, message) = (&self.shared.context.store, &self.messages[place].message);
        let get = engine::guarded(Operation::Query, async { store.get(&message.id).await });
        let found = self.lock.keep(get).await?;
        if found.is_ok() {
            self.shared.context.store_answered(Operation::Query);
        }
        Some(match found {
            Ok(Some(stored)) if stored.message.message == *message => Attempt::Stored,
            Ok(Some(_)) => Attempt::Refused(conflict),
            // Gone in between: what it was is not known any more, so this comes again and is stored.
            Ok(None) => {
                self.away = Some(Away { pause: GONE, probe: NonZeroUsize::MIN });
                Attempt::Away
            }
            Err(error) => {
                // Not by the breaker of storing, which the conflict has just closed.
                let pause = self.shared.context.store_failed(Operation::Query, &error);
                self.away = Some(Away { pause, probe: NonZeroUsize::MIN });
                Attempt::Away
            }
        })
    }

    fn blame_store(&mut self, error: &StoreError, pause: Option<Duration>, probe: NonZeroUsize) {
        // There is one wherever the message is not to blame.
        let pause = pause.unwrap_or_default();
        self.shared.context.reporter.report(Event::StoreFailed { retry_after: pause, error });
        self.away = Some(Away { pause, probe });
    }

    async fn complete(&mut self, stored: &[usize]) {
        let positions: Vec<u64> = stored.iter().map(|place| self.origins[*place].position).collect();
        let held = self.lock.complete(&positions).await;
        for (place, _) in stored.iter().zip(held).filter(|(_, held)| !held) {
            let OutgoingMessage { id, destination, .. } = &self.messages[*place].message;
            self.shared.context.reporter.report(Event::PossibleDuplicate { id, destination });
        }
    }
}
