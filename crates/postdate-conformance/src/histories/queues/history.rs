//! Histories of queues to try.

use std::fmt::{self, Display, Formatter};

use postdate_core::{MessageId, Selection};
use proptest::{collection::vec, prelude::*};

use super::super::{history::Handles, search::Steps};
use crate::make::{id, limit};

#[derive(Clone, Debug)]
pub(super) struct History(pub(super) Vec<Step>);

/// Handles, queues and claims are meant by their numbers.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Create { handle: usize, queue: usize },
    Send { handle: usize, sends: Vec<(MessageId, usize)> },
    Receive { handle: usize, queue: usize, selection: Selection },
    Complete { claim: usize, picks: Vec<Pick> },
    Abandon { claim: usize, picks: Vec<Pick> },
    Move { claim: usize, picks: Vec<Pick>, to: usize },
    Renew { claim: usize },
    Drop { claim: usize },
    Browse { handle: usize, queue: usize, after: usize, limit: usize },
    Purge { handle: usize, queue: usize },
    List { handle: usize },
    Reopen { handle: usize },
}

/// A position: one that the claim was given, or any that was ever seen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pick {
    Given(usize),
    Any(usize),
}

pub(super) const HANDLES: usize = 2;

/// The last one is not there at first.
pub(super) const QUEUES: usize = 3;

const IDS: [&str; 4] = ["m0", "m1", "M0", "n'%_"];

pub(super) fn histories(handles: Handles) -> impl Strategy<Value = History> {
    vec(step(handles), 1..=40).prop_map(History)
}

fn step(handles: Handles) -> BoxedStrategy<Step> {
    let handle = || 0..HANDLES;
    // Mostly those that are there.
    let queue = || prop_oneof![12 => 0..QUEUES - 1, 1 => Just(QUEUES - 1)];
    let claim = || 0..3_usize;
    let steps = prop_oneof![
        1 => (handle(), queue()).prop_map(|(handle, queue)| Step::Create { handle, queue }),
        8 => (handle(), vec((an_id(), queue()), 1..=3))
            .prop_map(|(handle, sends)| Step::Send { handle, sends }),
        8 => (handle(), queue(), selection())
            .prop_map(|(handle, queue, selection)| Step::Receive { handle, queue, selection }),
        5 => (claim(), picks()).prop_map(|(claim, picks)| Step::Complete { claim, picks }),
        4 => (claim(), picks()).prop_map(|(claim, picks)| Step::Abandon { claim, picks }),
        4 => (claim(), picks(), queue()).prop_map(|(claim, picks, to)| Step::Move { claim, picks, to }),
        2 => claim().prop_map(|claim| Step::Renew { claim }),
        2 => claim().prop_map(|claim| Step::Drop { claim }),
        3 => (handle(), queue(), 0..6_usize, 1..4_usize)
            .prop_map(|(handle, queue, after, limit)| Step::Browse { handle, queue, after, limit }),
        1 => (handle(), queue()).prop_map(|(handle, queue)| Step::Purge { handle, queue }),
        2 => handle().prop_map(|handle| Step::List { handle }),
    ];
    if handles == Handles::Change {
        return prop_oneof![40 => steps, 1 => handle().prop_map(|handle| Step::Reopen { handle })].boxed();
    }
    steps.boxed()
}

fn an_id() -> impl Strategy<Value = MessageId> {
    (0..IDS.len()).prop_map(|name| id(IDS[name]))
}

fn selection() -> impl Strategy<Value = Selection> {
    prop_oneof![
        4 => (1..4_usize).prop_map(|most| Selection::Next(limit(most))),
        1 => vec(an_id(), 1..=2).prop_map(Selection::Ids),
    ]
}

fn picks() -> impl Strategy<Value = Vec<Pick>> {
    let pick = prop_oneof![4 => (0..3_usize).prop_map(Pick::Given), 1 => (0..9_usize).prop_map(Pick::Any)];
    vec(pick, 1..=3)
}

impl Steps for History {
    fn first(&self, steps: usize) -> Self {
        Self(self.0.iter().take(steps).cloned().collect())
    }
}

impl Display for History {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, step)| write!(f, "\n{:>3}. {step:?}", i + 1))
    }
}
