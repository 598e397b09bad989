//! Delivering one batch: send, then remove.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::{
    batch::{self, Group},
    context::Context,
    moving::{self, Moved},
    now,
    send::{self, Broken, Deadline, Sent},
    settle::{Judged, Settled},
    sleep_until,
};
use crate::{Claim, DueBatch, Operation, StoreErrorKind, TransactionMode};

/// What a batch leaves behind for the loop.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// It said that it was slow.
    pub was_slow: bool,
    /// It gave messages back, or a gate changed.
    pub disturbed: bool,
    /// So many messages are to be fetched one by one.
    pub harmful: usize,
}

/// Delivers a batch.
pub(super) async fn deliver(
    context: Arc<Context>,
    batch: DueBatch,
    slow: mpsc::UnboundedSender<()>,
) -> Ended {
    let DueBatch { messages, claim, now: store_now, .. } = batch;
    let deadline = Deadline::new(claim.expires());
    let clock = StoreClock { at_fetch: store_now, fetched: now() };
    let delivery = Delivery { context: &context, claim, deadline: &deadline, clock, disturbed: false };
    let mut sorted = batch::sort(&context, messages, store_now).await;
    let groups = std::mem::take(&mut sorted.groups);
    let judged = Judged::untried(&context, sorted, store_now);
    if context.mode == TransactionMode::TransactionScope {
        delivery.in_one_transaction(judged, groups).await
    } else {
        delivery.group_by_group(judged, groups, slow).await
    }
}

/// A batch on its way.
pub(super) struct Delivery<'a> {
    pub context: &'a Context,
    pub claim: Box<dyn Claim>,
    pub clock: StoreClock,
    deadline: &'a Deadline,
    disturbed: bool,
}

/// Something that was under way has come to an end.
enum Done {
    Sent(Result<Sent, Broken>),
    Moved(Moved),
}

/// The store's clock, as it goes on from the moment of the fetch.
#[derive(Clone, Copy)]
pub(super) struct StoreClock {
    at_fetch: Timestamp,
    fetched: Instant,
}

impl StoreClock {
    pub(super) fn now(&self) -> Timestamp {
        let elapsed = now().saturating_duration_since(self.fetched);
        self.at_fetch.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}

impl Delivery<'_> {
    /// Sends each destination's messages beside the others' and settles what is done, so that a slow
    /// destination delays nobody else. The error queue is one of them.
    async fn group_by_group(
        mut self,
        untried: Judged,
        groups: Vec<Group>,
        slow: mpsc::UnboundedSender<()>,
    ) -> Ended {
        let (context, deadline) = (self.context, self.deadline);
        let mut outstanding = BTreeSet::new();
        let mut sends = FuturesUnordered::new();
        for group in groups {
            outstanding.insert(group.destination.clone());
            sends.push(async move { Done::Sent(send::group(context, group, deadline, None).await) }.boxed());
        }
        let mut judged = untried;
        let mut settled = Vec::new();
        let mut slow_at = Some(self.clock.fetched + context.settings.slow_after);
        loop {
            if let Some(condemned) = judged.take_condemned() {
                outstanding.insert(context.error_queue.clone());
                let moving = moving::to_error_queue(context, condemned, deadline, None);
                sends.push(moving.map(Done::Moved).boxed());
            }
            settled.push(self.settle(std::mem::take(&mut judged)).await);
            tokio::select! {
                biased;
                done = sends.next() => {
                    let Some(done) = done else { break };
                    // All that are done are settled together: one call to the store instead of many.
                    let more = std::iter::from_fn(|| sends.next().now_or_never().flatten());
                    for done in std::iter::once(done).chain(more) {
                        match done {
                            Done::Sent(Ok(sent)) => {
                                outstanding.remove(&sent.group.destination);
                                judged.add(context, sent, self.clock.now());
                            }
                            // Within a transaction only.
                            Done::Sent(Err(_)) => {}
                            Done::Moved(moved) => {
                                outstanding.remove(&context.error_queue);
                                judged.add_moved(context, moved);
                            }
                        }
                    }
                }
                () = sleep_until(deadline.renewal()) => self.renew().await,
                () = sleep_until(slow_at) => {
                    slow_at = None;
                    outstanding.iter().for_each(|to| context.gates().slow(to));
                    // The loop may be gone already; then nobody needs to know.
                    let _ = slow.send(());
                }
            }
        }
        drop(sends);
        let mut ended = Ended { was_slow: slow_at.is_none(), disturbed: self.disturbed, harmful: 0 };
        if !self.commit().await {
            ended.disturbed = true;
            settled.iter().for_each(|settled| settled.may_come_twice(context));
        }
        ended
    }

    async fn settle(&mut self, judged: Judged) -> Settled {
        self.disturbed |= judged.disturbs();
        let settled = judged.settle(self).await;
        settled.report(self.context);
        settled
    }

    /// Sends and removes everything in one transaction, or nothing.
    async fn in_one_transaction(mut self, mut judged: Judged, groups: Vec<Group>) -> Ended {
        let count = groups.iter().map(|group| group.messages.len()).sum();
        for group in groups {
            if self.deadline.renewal().is_some_and(|at| at <= now()) {
                self.renew().await;
            }
            let alone = (count == 1).then(|| group.messages[0].id.clone());
            match send::group(self.context, group, self.deadline, self.claim.enlist()).await {
                Ok(sent) => judged.add(self.context, sent, self.clock.now()),
                Err(Broken { destination, error, panicked: false }) => {
                    self.context.unavailable(&destination, &error);
                    return Ended { disturbed: true, ..Ended::default() };
                }
                Err(Broken { destination, error, panicked: true }) => {
                    self.context.gates().undecided(&destination, now());
                    if let Some(id) = alone {
                        self.context.suspect(id, error);
                    }
                    return Ended { disturbed: true, harmful: count, ..Ended::default() };
                }
            }
        }
        if let Some(condemned) = judged.take_condemned() {
            let transaction = self.claim.enlist();
            let moved = moving::to_error_queue(self.context, condemned, self.deadline, transaction).await;
            judged.add_moved(self.context, moved);
        }
        let (context, disturbed) = (self.context, judged.disturbs());
        let settled = judged.settle(&mut self).await;
        let committed = !settled.lost() && self.commit().await;
        if committed {
            settled.report(context);
        }
        Ended { disturbed: disturbed || !committed, ..Ended::default() }
    }

    async fn renew(&mut self) {
        match self.claim.renew().await {
            Ok(()) => {
                self.context.store_answered(Operation::Renew);
                self.deadline.extend(self.claim.expires());
            }
            Err(error) if error.kind() == StoreErrorKind::ClaimLost => self.deadline.lose(),
            Err(error) => tokio::time::sleep(self.context.store_failed(&error)).await,
        }
    }

    /// Makes permanent what was done. Answers whether that worked.
    async fn commit(self) -> bool {
        let context = self.context;
        match self.claim.commit().await {
            Ok(()) => {
                context.store_answered(Operation::Commit);
                true
            }
            Err(error) => {
                tokio::time::sleep(context.store_failed(&error)).await;
                false
            }
        }
    }
}
