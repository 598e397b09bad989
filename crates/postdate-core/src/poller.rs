//! The poller: from the store to the destinations.
//!
//! [`Schedule`] decides, this loop performs: fetch, ask, wait. Every fetched batch is delivered by a task of
//! its own.

mod batch;
mod context;
mod deliver;
mod moving;
mod send;
mod settle;

use std::{num::NonZeroUsize, sync::Arc, time::Instant};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

pub(crate) use context::{Context, Route};
use deliver::{Ended, deliver};

use crate::{
    DueBatch, FetchDue, Operation, StoreError,
    machine::{Action, Schedule, Step},
};

/// The time on the clock that moves with tokio's, also when that is paused.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Runs until it is told to stop and everything under way has ended or the drain time is over. Answers how many
/// batches were cut off.
pub(crate) async fn run(context: Arc<Context>, stop: watch::Receiver<bool>) -> usize {
    let (slow_sender, slow) = mpsc::unbounded_channel();
    let schedule = Schedule::new(&context.settings);
    Poller { context, schedule, stop, batches: JoinSet::new(), slow, slow_sender, drain_until: None }
        .run()
        .await
}

struct Poller {
    context: Arc<Context>,
    schedule: Schedule,
    stop: watch::Receiver<bool>,
    batches: JoinSet<Ended>,
    slow: mpsc::UnboundedReceiver<()>,
    slow_sender: mpsc::UnboundedSender<()>,
    drain_until: Option<Instant>,
}

impl Poller {
    async fn run(mut self) -> usize {
        let mut step = Step::Go;
        loop {
            step = match self.schedule.step(now(), step) {
                Action::Fetch { limit } => self.fetch(limit).await,
                Action::Ask => self.ask().await,
                Action::Wait { until } => match self.wait(until).await {
                    Some(step) => step,
                    None => return self.cut_off().await,
                },
                Action::Finished => return 0,
            };
        }
    }

    async fn fetch(&mut self, limit: NonZeroUsize) -> Step {
        let except = self.context.shut_gates(now());
        let request = FetchDue { limit, except: &except };
        let fetched = unless_stopped(&mut self.stop, self.context.store.fetch_due(request)).await;
        let Some(fetched) = fetched else { return self.stopping() };
        match fetched {
            Ok(batch) => self.take(limit, batch),
            Err(error) => self.failed(&error),
        }
    }

    fn take(&mut self, limit: NonZeroUsize, batch: DueBatch) -> Step {
        self.context.store_answered(Operation::FetchDue);
        let count = batch.messages.len();
        let contended = batch.contended;
        let lateness = batch.messages.first().map(|oldest| context::lateness(batch.now, oldest.due));
        if let Some(lateness) = lateness {
            self.context.reporter.report(crate::Event::Fetched { count, lateness });
            self.batches.spawn(deliver(self.context.clone(), batch, self.slow_sender.clone()));
        }
        Step::Fetched { count, full: count >= limit.get(), contended, lateness: lateness.unwrap_or_default() }
    }

    async fn ask(&mut self) -> Step {
        // Here too, for a poller that has no batches any more.
        self.context.recovery_passed();
        let at = now();
        let except = self.context.shut_gates(at);
        // As of the same moment: a gate that is shut in the question and open in the answer would be forgotten.
        let probe = self.context.gates().next_probe(at);
        let asked = unless_stopped(&mut self.stop, self.context.store.next_due(&except)).await;
        let Some(asked) = asked else { return self.stopping() };
        match asked {
            Ok(next) => {
                self.context.store_answered(Operation::NextDue);
                Step::NextDue { wait: next.wait(), probe }
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &StoreError) -> Step {
        Step::Failed { pause: self.context.store_failed(error) }
    }

    fn stopping(&mut self) -> Step {
        self.drain_until.get_or_insert_with(|| now() + self.context.settings.drain_time);
        Step::Stop
    }

    /// Waits for something to happen. `None` when the drain time is over.
    async fn wait(&mut self, until: Option<Instant>) -> Option<Step> {
        let draining = self.drain_until.is_some();
        let until = self.drain_until.or(until);
        tokio::select! {
            biased;
            () = stopped(&mut self.stop), if !draining => Some(self.stopping()),
            // Before the end of batches: a batch says that it is slow before it ends.
            Some(()) = self.slow.recv() => Some(Step::Slow),
            Some(ended) = self.batches.join_next() => Some(self.ended(ended)),
            () = sleep_until(until) => (!draining).then_some(Step::Go),
            () = self.context.store.changed(), if !draining && until.is_some() => Some(Step::Woken),
        }
    }

    fn ended(&self, ended: Result<Ended, tokio::task::JoinError>) -> Step {
        let ended = ended.unwrap_or_else(|error| {
            tracing::error!(%error, "delivering a batch panicked; its messages were given back");
            Ended { disturbed: true, ..Ended::default() }
        });
        self.context.recovery_passed();
        Step::Ended { was_slow: ended.was_slow, disturbed: ended.disturbed, harmful: ended.harmful }
    }

    async fn cut_off(mut self) -> usize {
        let count = self.batches.len();
        self.batches.shutdown().await;
        count
    }
}

/// A call to the store, given up when it is time to stop: stopping must not wait for a store that hangs.
async fn unless_stopped<T>(stop: &mut watch::Receiver<bool>, call: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stopped(stop) => None,
        answer = call => Some(answer),
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means that nobody can want this to go on.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
