//! Storing, watched by the store breaker, whoever it is that stores.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::Timestamp;

use super::{guarded, now};
use crate::{
    BreakerName, DelayedMessage, DelayedMessageStore, Event, Operation, StoreError,
    machine::Breaker,
    observer::{Reporter, Turn},
};

/// Stores messages for an endpoint.
#[derive(Debug)]
pub(crate) struct Storing {
    store: Arc<dyn DelayedMessageStore>,
    breaker: Mutex<Breaker>,
    successes: AtomicU64,
    reporter: Reporter,
}

/// Nothing was stored, as far as one knows.
#[derive(Debug)]
pub(crate) struct Unstored {
    pub error: StoreError,
    /// How long to leave the store alone, unless the message is to blame.
    pub pause: Option<Duration>,
}

impl Storing {
    pub(crate) fn new(
        store: Arc<dyn DelayedMessageStore>,
        time_to_trigger: Duration,
        reporter: Reporter,
    ) -> Self {
        Self {
            store,
            breaker: Mutex::new(Breaker::new(time_to_trigger)),
            successes: AtomicU64::new(0),
            reporter,
        }
    }

    /// Stores messages, all or none.
    pub(crate) async fn store(&self, messages: &[DelayedMessage]) -> Result<Vec<Timestamp>, Unstored> {
        // The future is made inside, so that a store which panics before its first await is caught as well.
        let error = match guarded(Operation::Store, async { self.store.store(messages).await }).await {
            Ok(dues) => {
                self.answered();
                self.successes.fetch_add(1, Relaxed);
                for (DelayedMessage { message, .. }, due) in messages.iter().zip(&dues) {
                    let (id, destination) = (&message.id, &message.destination);
                    self.reporter.report(Event::Stored { id, destination, due: *due });
                }
                return Ok(dues);
            }
            Err(error) => error,
        };
        if error.blames_message() {
            // A message that is refused proves that the store is there.
            self.answered();
            return Err(Unstored { error, pause: None });
        }
        let pause = Some(self.failed(&error));
        Err(Unstored { error, pause })
    }

    /// How often the store took something.
    pub(crate) fn successes(&self) -> u64 {
        self.successes.load(Relaxed)
    }

    /// The store is to blame for this. Answers how long to leave it alone.
    fn failed(&self, error: &StoreError) -> Duration {
        self.reporter.watch(&self.breaker, |breaker| {
            let failed = breaker.failure(now());
            let turn = failed.tripped.then(|| Turn::Tripped(BreakerName::Store, error.to_string()));
            (failed.pause, turn.into_iter().collect())
        })
    }

    fn answered(&self) {
        self.reporter.watch(&self.breaker, |breaker| {
            let turn = breaker.success().then_some(Turn::Closed(BreakerName::Store));
            ((), turn.into_iter().collect())
        });
    }
}
