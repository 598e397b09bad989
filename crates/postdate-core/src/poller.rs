//! The poller: from the store to the destinations.
//!
//! [`Schedule`] decides, this loop performs: fetch, ask, wait. Every fetched batch is delivered by a task of
//! its own.

mod batch;
mod deliver;
mod group;
mod settle;

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinError, JoinSet},
};

use deliver::{Ended, Note, deliver};

use crate::{
    DueBatch, FetchDue, Operation, StoreError,
    engine::{AFTER_PANIC, Context, Drain, Heard, call, changed, hear, lateness, now, sleep_until, stopped},
    machine::{Action, Schedule, Step},
};

/// Runs until it is told to stop and everything under way has ended or the drain time is over. Answers how many
/// batches were cut off.
pub(crate) async fn run(context: Arc<Context>, stop: watch::Receiver<bool>) -> usize {
    let (note_sender, notes) = mpsc::unbounded_channel();
    let schedule = Schedule::new(&context.settings);
    let (batches, slow, ended, drain) = (JoinSet::new(), Vec::new(), None, Drain::NotYet);
    Poller { context, schedule, stop, batches, notes, note_sender, slow, ended, drain }.run().await
}

struct Poller {
    context: Arc<Context>,
    schedule: Schedule,
    stop: watch::Receiver<bool>,
    batches: JoinSet<Ended>,
    notes: mpsc::UnboundedReceiver<Note>,
    note_sender: mpsc::UnboundedSender<Note>,
    /// Batches that have given up their place.
    slow: Vec<Id>,
    /// A batch that ended, whose notes come first.
    ended: Option<Result<(Id, Ended), JoinError>>,
    drain: Drain,
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
        let fetch = self.context.store.fetch_due(FetchDue { limit, except: &except });
        match call(&mut self.stop, Operation::FetchDue, fetch).await {
            None => self.stopping(),
            Some(Ok(batch)) => self.take(limit, batch),
            Some(Err(error)) => self.failed(Operation::FetchDue, &error),
        }
    }

    fn take(&mut self, limit: NonZeroUsize, batch: DueBatch) -> Step {
        self.context.store_answered(Operation::FetchDue);
        let (count, contended) = (batch.messages.len(), batch.contended);
        let late = |message: &crate::DueMessage| lateness(batch.now, message.due);
        // A message that is late because it failed before is no backlog.
        let backlog =
            batch.messages.iter().find(|message| message.failures == 0).map_or(Duration::ZERO, late);
        if let Some(lateness) = batch.messages.first().map(late) {
            self.context.reporter.report(crate::Event::Fetched { count, lateness });
            self.batches.spawn(deliver(self.context.clone(), batch, self.note_sender.clone()));
        }
        Step::Fetched { count, full: count >= limit.get(), contended, lateness: backlog }
    }

    async fn ask(&mut self) -> Step {
        self.context.recovery_passed();
        let except = self.context.shut_gates(now());
        // Now, and not after the answer: a gate whose pause ends meanwhile is excepted from it.
        let probe = self.context.gates().next_probe(now());
        let ask = self.context.store.next_due(&except);
        match call(&mut self.stop, Operation::NextDue, ask).await {
            None => self.stopping(),
            Some(Ok(next)) => {
                self.context.store_answered(Operation::NextDue);
                Step::NextDue { wait: next.wait(), probe }
            }
            Some(Err(error)) => self.failed(Operation::NextDue, &error),
        }
    }

    fn failed(&self, operation: Operation, error: &StoreError) -> Step {
        Step::Failed { pause: self.context.store_failed(operation, error) }
    }

    fn stopping(&mut self) -> Step {
        self.drain.begin(self.context.settings.drain_time);
        Step::Stop
    }

    /// Waits for something to happen. `None` when the drain time is over.
    async fn wait(&mut self, until: Option<Instant>) -> Option<Step> {
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
            () = sleep_until(until) => (!draining).then_some(Step::Go),
            () = changed("the store", self.context.store.changed()), if !draining && until.is_some() => Some(Step::Woken),
        }
    }

    fn noted(&mut self, note: Note) -> Step {
        match note {
            Note::Disturbed => Step::Woken,
            Note::Slow(batch) => {
                self.slow.push(batch);
                Step::Slow
            }
        }
    }

    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) -> Step {
        self.context.recovery_passed();
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let place = self.slow.iter().position(|slow| *slow == id);
        let was_slow = place.map(|place| self.slow.swap_remove(place)).is_some();
        match ended {
            Ok((_, Ended { disturbed, harmful })) => Step::Ended { was_slow, disturbed, harmful },
            Err(error) => {
                tracing::error!(%error, "delivering a batch panicked; its messages were given back");
                self.context.gates().all_undecided(now());
                Step::Panicked { was_slow, pause: AFTER_PANIC }
            }
        }
    }

    async fn cut_off(mut self) -> usize {
        let count = self.batches.len();
        self.batches.shutdown().await;
        count
    }
}
