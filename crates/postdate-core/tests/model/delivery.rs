//! Delivery as a system: dispatchers that claim, send and remove, and all that can come between.

use crate::explorer::System;

/// How often a refused message is tried again.
pub(crate) const RETRIES: u8 = 1;

/// How delivery goes about it: rightly, or wrong in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    SendThenRemove,
    /// Rightly, where sending and removing are one transaction.
    OneTransaction,
    RemoveThenSend,
    NoFence,
    ErrorPathRemovesFirst,
    CancelWithoutLooking,
    OutageCounts,
    ClaimsForEver,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) order: Order,
    pub(crate) dispatchers: usize,
    pub(crate) messages: usize,
    /// The destination refuses the first so many messages.
    pub(crate) poison: usize,
    pub(crate) budget: Budget,
}

/// What can still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    /// Leases that end though their dispatcher is at work.
    pub(crate) late: u8,
    /// Sends that arrive and whose answer is lost.
    pub(crate) lost_answers: u8,
    pub(crate) outages: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) messages: Vec<Message>,
    pub(crate) dispatchers: Vec<Dispatcher>,
    is_down: bool,
    left: Budget,
    /// Somebody changed what he did not hold.
    pub(crate) trespassed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Message {
    /// Whether it is in the store.
    pub(crate) is_there: bool,
    holder: Option<Token>,
    pub(crate) failures: u8,
    /// How often the destination refused it.
    pub(crate) refused: u8,
    pub(crate) sent: u8,
    /// Copies in the error queue.
    pub(crate) moved: u8,
    pub(crate) is_cancelled: bool,
    /// What may be the reason for a duplicate.
    pub(crate) excuses: u8,
}

/// The fence: a number that nobody else has who may still act on the message.
type Token = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dispatcher {
    Idle,
    Has { message: usize, token: Token, stage: Stage },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Fetched,
    Sent,
    Refused,
    Moved,
    /// Out of order: removed, to be sent.
    RemovedUnsent,
    /// Out of order: removed, to be moved to the error queue.
    RemovedUnmoved,
}

/// By which dispatcher, or to which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Fetch(usize, usize),
    Send(usize),
    SendAnswerLost(usize),
    SendRefused(usize),
    SendUnavailable(usize),
    Remove(usize),
    Count(usize),
    MoveToErrorQueue(usize),
    GiveBack(usize),
    Crash(usize),
    LeaseEnds(usize),
    Cancel(usize),
    OutageBegins,
    OutageEnds,
}

impl System for Delivery {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        State {
            messages: vec![Message { is_there: true, ..Message::default() }; self.messages],
            dispatchers: vec![Dispatcher::Idle; self.dispatchers],
            is_down: false,
            left: self.budget,
            trespassed: false,
        }
    }

    fn next(&self, state: &State) -> Vec<(Action, State)> {
        let mut next = Next { delivery: self, state, ways: Vec::new() };
        for (i, dispatcher) in state.dispatchers.iter().enumerate() {
            match *dispatcher {
                Dispatcher::Idle => (0..self.messages).for_each(|message| next.fetch(i, message)),
                Dispatcher::Has { message, stage, .. } => {
                    next.go_on(i, message, stage);
                    next.crash(i, message);
                }
            }
        }
        (0..self.messages).for_each(|message| next.time_passes(message));
        (0..self.messages).for_each(|message| next.cancel(message));
        next.weather();
        next.ways
    }
}

/// The ways on from a state.
struct Next<'a> {
    delivery: &'a Delivery,
    state: &'a State,
    ways: Vec<(Action, State)>,
}

impl Next<'_> {
    fn way(&mut self, action: Action, change: impl FnOnce(&mut State)) {
        let mut state = self.state.clone();
        change(&mut state);
        self.ways.push((action, state));
    }

    fn fetch(&mut self, dispatcher: usize, message: usize) {
        let Message { is_there, holder, .. } = self.state.messages[message];
        if is_there && holder.is_none() {
            let token = self.state.unused_token(message);
            self.way(Action::Fetch(dispatcher, message), |state| {
                state.messages[message].holder = Some(token);
                state.dispatchers[dispatcher] = Dispatcher::Has { message, token, stage: Stage::Fetched };
            });
        }
    }

    fn go_on(&mut self, dispatcher: usize, message: usize, stage: Stage) {
        use Stage::{Fetched, Moved, Refused, RemovedUnmoved, RemovedUnsent, Sent};
        let order = self.delivery.order;
        match stage {
            Fetched if order == Order::RemoveThenSend => self.remove(dispatcher, Some(RemovedUnsent)),
            Fetched => {
                self.give_back(dispatcher, Action::GiveBack(dispatcher));
                self.send(dispatcher, message, stage);
            }
            RemovedUnsent => self.send(dispatcher, message, stage),
            Sent | Moved => self.remove(dispatcher, None),
            Refused if self.state.messages[message].failures < RETRIES => self.count(dispatcher),
            Refused if order == Order::ErrorPathRemovesFirst => self.remove(dispatcher, Some(RemovedUnmoved)),
            Refused | RemovedUnmoved => self.move_to_error_queue(dispatcher, message, stage),
        }
    }

    fn send(&mut self, dispatcher: usize, message: usize, stage: Stage) {
        let order = self.delivery.order;
        if self.state.is_down {
            let action = Action::SendUnavailable(dispatcher);
            if order == Order::OutageCounts {
                let most = RETRIES + 2;
                return self.settle(dispatcher, action, |message| {
                    message.failures = most.min(message.failures + 1);
                });
            }
            return self.give_back(dispatcher, action);
        }
        if message < self.delivery.poison {
            return self.way(Action::SendRefused(dispatcher), |state| {
                state.messages[message].refused += 1;
                state.enter(dispatcher, Stage::Refused);
            });
        }
        if order == Order::OneTransaction {
            // Nothing is sent unless everything is held when it is committed.
            return self.settle(dispatcher, Action::Send(dispatcher), |message| {
                message.sent += 1;
                message.is_there = false;
            });
        }
        self.way(Action::Send(dispatcher), |state| {
            state.messages[message].sent += 1;
            match stage {
                Stage::RemovedUnsent => state.dispatchers[dispatcher] = Dispatcher::Idle,
                _ => state.enter(dispatcher, Stage::Sent),
            }
        });
        if self.state.left.lost_answers > 0 {
            self.give_back(dispatcher, Action::SendAnswerLost(dispatcher));
            if let Some((_, state)) = self.ways.last_mut() {
                state.left.lost_answers -= 1;
                state.messages[message].sent += 1;
                state.messages[message].excuses += 1;
            }
        }
    }

    fn count(&mut self, dispatcher: usize) {
        self.settle(dispatcher, Action::Count(dispatcher), |message| message.failures += 1);
    }

    fn move_to_error_queue(&mut self, dispatcher: usize, message: usize, stage: Stage) {
        let action = Action::MoveToErrorQueue(dispatcher);
        if self.delivery.order == Order::OneTransaction {
            return self.settle(dispatcher, action, |message| {
                message.moved += 1;
                message.is_there = false;
            });
        }
        self.way(action, |state| {
            state.messages[message].moved += 1;
            match stage {
                Stage::RemovedUnmoved => state.dispatchers[dispatcher] = Dispatcher::Idle,
                _ => state.enter(dispatcher, Stage::Moved),
            }
        });
    }

    fn give_back(&mut self, dispatcher: usize, action: Action) {
        self.settle(dispatcher, action, |_| {});
    }

    /// Removes the message, and is done with it or goes on to `then`.
    fn remove(&mut self, dispatcher: usize, then: Option<Stage>) {
        self.settle(dispatcher, Action::Remove(dispatcher), |message| message.is_there = false);
        if let (Some(then), Some((_, state))) = (then, self.ways.last_mut())
            && let Dispatcher::Has { message, token, .. } = self.state.dispatchers[dispatcher]
            && self.state.messages[message].is_there
            && !state.messages[message].is_there
        {
            state.dispatchers[dispatcher] = Dispatcher::Has { message, token, stage: then };
        }
    }

    /// Changes the message in the store and lets go of it, if it is held. Otherwise nothing happens but that the
    /// dispatcher is told.
    fn settle(&mut self, dispatcher: usize, action: Action, change: impl FnOnce(&mut Message)) {
        let Dispatcher::Has { message, token, .. } = self.state.dispatchers[dispatcher] else { return };
        let has_fence = self.delivery.order != Order::NoFence;
        self.way(action, |state| {
            let row = &mut state.messages[message];
            let is_held = row.is_there && row.holder == Some(token);
            if is_held || (!has_fence && row.is_there) {
                change(row);
                row.holder = None;
                state.trespassed |= !is_held;
            }
            state.dispatchers[dispatcher] = Dispatcher::Idle;
        });
    }

    fn crash(&mut self, dispatcher: usize, message: usize) {
        if self.state.left.crashes > 0 {
            self.way(Action::Crash(dispatcher), |state| {
                state.left.crashes -= 1;
                state.messages[message].excuses += 1;
                state.dispatchers[dispatcher] = Dispatcher::Idle;
            });
        }
    }

    fn time_passes(&mut self, message: usize) {
        let Some(token) = self.state.messages[message].holder else { return };
        let is_at_work = self.state.has(message, token);
        let is_possible = !is_at_work || self.state.left.late > 0;
        if is_possible && self.delivery.order != Order::ClaimsForEver {
            self.way(Action::LeaseEnds(message), |state| {
                state.messages[message].holder = None;
                state.messages[message].excuses += u8::from(is_at_work);
                state.left.late -= u8::from(is_at_work);
            });
        }
    }

    fn cancel(&mut self, message: usize) {
        let Message { is_there, holder, .. } = self.state.messages[message];
        let looks = self.delivery.order != Order::CancelWithoutLooking;
        if is_there && !(looks && holder.is_some()) {
            self.way(Action::Cancel(message), |state| {
                let row = &mut state.messages[message];
                (row.is_there, row.holder, row.is_cancelled) = (false, None, true);
            });
        }
    }

    fn weather(&mut self) {
        if self.state.is_down {
            self.way(Action::OutageEnds, |state| state.is_down = false);
        } else if self.state.left.outages > 0 {
            self.way(Action::OutageBegins, |state| {
                state.is_down = true;
                state.left.outages -= 1;
            });
        }
    }
}

impl State {
    fn has(&self, message: usize, token: Token) -> bool {
        let has = |dispatcher: &Dispatcher| matches!(dispatcher, Dispatcher::Has { message: m, token: t, .. } if (*m, *t) == (message, token));
        self.dispatchers.iter().any(has)
    }

    /// A token that nobody remembers is as good as a new one.
    fn unused_token(&self, message: usize) -> Token {
        (0..).find(|token| !self.has(message, *token)).expect("there are fewer dispatchers than tokens")
    }

    fn enter(&mut self, dispatcher: usize, new: Stage) {
        if let Dispatcher::Has { stage, .. } = &mut self.dispatchers[dispatcher] {
            *stage = new;
        }
    }
}
