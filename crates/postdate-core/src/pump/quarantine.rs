//! Messages that cannot be stored by their own fault, on their way to the error queue.

use std::{error::Error, time::Duration};

use jiff::Timestamp;
use tokio::sync::watch;

use super::lock::Lock;
use crate::{
    DueMessage, Event, OutgoingMessage, Reason,
    engine::{self, Condemned, Context, MOVES, Moved},
    error_queue::Fault,
};

/// Condemned messages of one batch, and their positions in the queue.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    positions: Vec<u64>,
    condemned: Condemned,
}

impl Quarantine {
    pub(super) fn add(
        &mut self,
        position: u64,
        message: DueMessage,
        error: &(dyn Error + 'static),
        at: Timestamp,
    ) {
        let (reason, attempts) = (Reason::NotStorable, 1);
        let fault = Fault { reason, attempts, error: error.to_string(), trace: engine::chain(error), at };
        self.positions.push(position);
        self.condemned.push((message, fault));
    }

    pub(super) fn len(&self) -> usize {
        self.condemned.len()
    }

    /// Moves all to the error queue, and then takes them from theirs. While it cannot be reached they stay, under the
    /// lock, so that they stand in nobody's way; they go back when the lock ends or it is time to stop.
    pub(super) async fn empty(mut self, context: &Context, lock: &mut Lock, mut stop: watch::Receiver<bool>) {
        let mut pause = Duration::ZERO;
        lock.waits();
        for failed_moves in 1.. {
            if self.condemned.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = engine::stopped(&mut stop) => break,
                kept = lock.keep(tokio::time::sleep(pause)) => if kept.is_none() { return },
            }
            self.move_what_can_be(context, lock).await;
            pause = MOVES.after(failed_moves).min(context.settings.longest_wait);
        }
        lock.give_back(&self.positions).await;
    }

    async fn move_what_can_be(&mut self, context: &Context, lock: &mut Lock) {
        let condemned = std::mem::take(&mut self.condemned);
        let moved = if engine::is_admitted(context) {
            let deadline = lock.deadline();
            let moving = engine::to_error_queue(context, condemned.clone(), &deadline);
            match lock.keep(moving).await {
                Some(moved) => moved,
                None => {
                    context.gates().undecided(&context.error_queue, engine::now());
                    Moved::untried(condemned)
                }
            }
        } else {
            Moved::untried(condemned)
        };
        let (is_moved, _) = moved.judge(context);
        let positions = std::mem::take(&mut self.positions);
        let (mut gone, mut gone_from) = (Vec::new(), Vec::new());
        for ((condemned, position), is_moved) in moved.condemned.into_iter().zip(positions).zip(is_moved) {
            if is_moved {
                gone.push(condemned);
                gone_from.push(position);
            } else {
                self.condemned.push(condemned);
                self.positions.push(position);
            }
        }
        let held = lock.complete(&gone_from).await;
        for ((message, fault), held) in gone.iter().zip(held) {
            engine::report_moved(&context.reporter, message, fault);
            if !held {
                let OutgoingMessage { id, destination, .. } = &message.message;
                context.reporter.report(Event::PossibleDuplicate { id, destination });
            }
        }
    }
}
