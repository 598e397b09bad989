//! Delivering one batch: send, then remove.

use std::{collections::BTreeSet, sync::Arc};

use tokio::{
    sync::mpsc,
    task::{Id, JoinError, JoinSet},
};

use super::{
    batch::{self, Group},
    group::{self, Sent},
    settle::{Judged, Settled},
};
use crate::{
    Address, Claim, DueBatch, Operation, StoreErrorKind, TransactionMode,
    engine::{self, Broken, Context, Deadline, DistantClock, Moved, now, sleep_until},
    machine::Admission,
};

/// What a batch tells the loop while it is under way.
#[derive(Debug)]
pub(super) enum Note {
    /// It waits for a slow destination and gives up its place.
    Slow(Id),
    /// It gave messages back, or a gate changed.
    Disturbed,
}

/// What a batch leaves behind for the loop.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// It gave messages back, or a gate changed.
    pub disturbed: bool,
    /// So many messages are to be fetched one by one.
    pub harmful: usize,
}

/// Delivers a batch.
pub(super) async fn deliver(
    context: Arc<Context>,
    batch: DueBatch,
    notes: mpsc::UnboundedSender<Note>,
) -> Ended {
    let DueBatch { messages, claim, now: store_now, .. } = batch;
    let deadline = Arc::new(Deadline::new(claim.expires()));
    let clock = DistantClock::showing(store_now);
    let mut sorted = batch::sort(&context, messages, store_now).await;
    let groups = std::mem::take(&mut sorted.groups);
    let judged = Judged::untried(&context, sorted, store_now);
    let delivery = Delivery { context, claim, clock, deadline, notes, disturbed: false };
    if delivery.context.mode == TransactionMode::TransactionScope {
        delivery.in_one_transaction(judged, groups).await
    } else {
        delivery.group_by_group(judged, groups).await
    }
}

/// A batch on its way.
pub(super) struct Delivery {
    pub context: Arc<Context>,
    pub claim: Box<dyn Claim>,
    pub clock: DistantClock,
    deadline: Arc<Deadline>,
    notes: mpsc::UnboundedSender<Note>,
    disturbed: bool,
}

/// What is under way for one batch. Each destination has a task of its own, so that nothing that is waited for
/// here keeps a send from going on.
#[derive(Default)]
struct UnderWay {
    tasks: JoinSet<Done>,
    destinations: BTreeSet<Address>,
}

/// Something that was under way has come to an end.
enum Done {
    Sent(Result<Sent, Broken>),
    Moved(Moved),
}

impl Delivery {
    /// Sends each destination's messages beside the others' and settles what is done, so that a slow
    /// destination delays nobody else. The error queue is one of them.
    async fn group_by_group(mut self, untried: Judged, groups: Vec<Group>) -> Ended {
        let (mut under_way, mut judged) = (UnderWay::default(), untried);
        groups.into_iter().for_each(|group| self.send(&mut under_way, &mut judged, group));
        let mut settled = Vec::new();
        let mut slow_at = now().checked_add(self.context.settings.slow_after);
        loop {
            self.move_condemned(&mut under_way, &mut judged);
            settled.push(self.settle(std::mem::take(&mut judged), !under_way.tasks.is_empty()).await);
            tokio::select! {
                biased;
                done = under_way.tasks.join_next() => {
                    let Some(done) = done else { break };
                    // All that are done are settled together: one call to the store instead of many.
                    self.judge(&mut under_way, &mut judged, done);
                    while let Some(done) = under_way.tasks.try_join_next() {
                        self.judge(&mut under_way, &mut judged, done);
                    }
                }
                () = sleep_until(self.deadline.renewal()) => self.renew().await,
                () = sleep_until(self.deadline.sending_ends()) => {
                    under_way.tasks.shutdown().await;
                    break;
                }
                () = sleep_until(slow_at) => {
                    slow_at = None;
                    under_way.destinations.iter().for_each(|to| self.context.gates().slow(to));
                    self.note(Note::Slow(tokio::task::id()));
                }
            }
        }
        // Left are those whose sending was given up, or panicked.
        self.disturbed |= !under_way.destinations.is_empty();
        under_way.destinations.iter().for_each(|to| self.context.gates().undecided(to, now()));
        let (context, mut disturbed) = (self.context.clone(), self.disturbed);
        if self.commit().await.is_err() {
            disturbed = true;
            settled.iter().for_each(|settled| settled.may_come_twice(&context));
        }
        Ended { disturbed, harmful: 0 }
    }

    /// Asks the gate here and not in the task: what is under way is what was admitted.
    fn send(&self, under_way: &mut UnderWay, judged: &mut Judged, group: Group) {
        let admission = self.context.gates().admit(&group.destination, now());
        if admission == Admission::Nothing {
            return judged.hold(group);
        }
        let (context, deadline) = (self.context.clone(), self.deadline.clone());
        under_way.destinations.insert(group.destination.clone());
        under_way
            .tasks
            .spawn(async move { Done::Sent(group::send(&context, group, admission, &deadline, None).await) });
    }

    fn move_condemned(&self, under_way: &mut UnderWay, judged: &mut Judged) {
        let Some(condemned) = judged.take_condemned() else { return };
        if !engine::is_admitted(&self.context) {
            return judged.add_moved(&self.context, Moved::untried(condemned));
        }
        let (context, deadline) = (self.context.clone(), self.deadline.clone());
        under_way.destinations.insert(context.error_queue.clone());
        under_way
            .tasks
            .spawn(async move { Done::Moved(engine::to_error_queue(&context, condemned, &deadline).await) });
    }

    fn judge(&self, under_way: &mut UnderWay, judged: &mut Judged, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Sent(Ok(sent))) => {
                under_way.destinations.remove(&sent.group.destination);
                judged.add(&self.context, sent, self.clock.now());
            }
            Ok(Done::Moved(moved)) => {
                under_way.destinations.remove(&self.context.error_queue);
                judged.add_moved(&self.context, moved);
            }
            // What was to be sent goes back with the claim.
            Ok(Done::Sent(Err(Broken { error, .. }))) => tracing::error!(error, "sending broke off"),
            Err(error) => tracing::error!(%error, "sending panicked"),
        }
    }

    async fn settle(&mut self, judged: Judged, more_under_way: bool) -> Settled {
        if judged.disturbs() {
            self.disturbed = true;
            if more_under_way {
                self.note(Note::Disturbed);
            }
        }
        let settled = judged.settle(self).await;
        settled.report(&self.context);
        settled
    }

    fn note(&self, note: Note) {
        // The loop may be gone already; then nobody needs to know.
        let _ = self.notes.send(note);
    }

    /// Sends and removes everything in one transaction, or nothing.
    async fn in_one_transaction(mut self, mut judged: Judged, groups: Vec<Group>) -> Ended {
        let context = self.context.clone();
        let count = groups.iter().map(|group| group.messages.len()).sum();
        let alone = groups.first().filter(|_| count == 1).map(|group| group.messages[0].id.clone());
        let harmful = |error: String| {
            if let Some(id) = &alone {
                context.suspect(id.clone(), error);
            }
            Ended { disturbed: true, harmful: count }
        };
        for group in groups {
            if self.deadline.renewal().is_some_and(|at| at <= now()) {
                self.renew().await;
            }
            let admission = context.gates().admit(&group.destination, now());
            if admission == Admission::Nothing {
                judged.hold(group);
                continue;
            }
            match group::send(&context, group, admission, &self.deadline, self.claim.enlist()).await {
                Ok(sent) => judged.add(&context, sent, self.clock.now()),
                Err(Broken { destination, error, panicked: true }) => {
                    context.gates().undecided(&destination, now());
                    return harmful(error);
                }
                Err(Broken { destination, error, panicked: false }) => {
                    context.unavailable(&destination, &error);
                    return Ended { disturbed: true, harmful: 0 };
                }
            }
        }
        if let Some(condemned) = judged.take_condemned() {
            let moved = if engine::is_admitted(&context) {
                engine::in_transaction(&context, condemned, &self.deadline, self.claim.enlist()).await
            } else {
                Ok(Moved::untried(condemned))
            };
            match moved {
                Ok(moved) => judged.add_moved(&context, moved),
                Err(Broken { destination, error, .. }) => {
                    // With the gate shut the others of the batch get through without the error queue.
                    context.unavailable(&destination, &error);
                    return Ended { disturbed: true, harmful: 0 };
                }
            }
        }
        let disturbed = judged.disturbs();
        let settled = judged.settle(&mut self).await;
        if settled.lost() {
            return Ended { disturbed: true, harmful: 0 };
        }
        match self.commit().await {
            Ok(()) => {
                settled.report(&context);
                Ended { disturbed, harmful: 0 }
            }
            Err(Uncommitted::ForNow) => Ended { disturbed: true, harmful: 0 },
            Err(Uncommitted::ForGood(error)) => harmful(error),
        }
    }

    async fn renew(&mut self) {
        match self.claim.renew().await {
            Ok(()) => {
                self.context.store_answered(Operation::Renew);
                self.deadline.extend(self.claim.expires());
            }
            Err(error) if error.kind() == StoreErrorKind::ClaimLost => self.deadline.lose(),
            Err(error) => {
                let pause = self.context.store_failed(Operation::Renew, &error);
                self.deadline.renew_after(pause);
            }
        }
    }

    /// Makes permanent what was done.
    async fn commit(self) -> Result<(), Uncommitted> {
        let context = self.context;
        match self.claim.commit().await {
            Ok(()) => {
                context.store_answered(Operation::Commit);
                Ok(())
            }
            Err(error) => {
                tokio::time::sleep(context.store_failed(Operation::Commit, &error)).await;
                Err(if error.is_transient() {
                    Uncommitted::ForNow
                } else {
                    Uncommitted::ForGood(error.to_string())
                })
            }
        }
    }
}

/// Why a transaction was not committed.
enum Uncommitted {
    /// Trying again may help.
    ForNow,
    /// One of its messages may be to blame.
    ForGood(String),
}
