//! Looks at every state that a system can come to, nearest first.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
};

/// Goes from state to state.
pub(crate) trait System {
    type State: Clone + Ord;
    type Action: Clone + Debug;

    fn start(&self) -> Self::State;

    /// What can happen, and where it leads.
    fn next(&self, state: &Self::State) -> Vec<(Self::Action, Self::State)>;
}

/// All states of a system.
pub(crate) struct Explored<S: System> {
    states: Vec<S::State>,
    /// From which state, and by which action, each was first reached.
    reached: Vec<Option<(usize, S::Action)>>,
    /// The states from which each can be reached in one step.
    before: Vec<Vec<usize>>,
}

impl<S: System> Explored<S> {
    pub(crate) fn all(system: &S) -> Self {
        let start = system.start();
        let mut numbers = BTreeMap::from([(start.clone(), 0)]);
        let mut explored = Self { states: vec![start], reached: vec![None], before: vec![vec![]] };
        let mut unseen = VecDeque::from([0]);
        while let Some(from) = unseen.pop_front() {
            for (action, state) in system.next(&explored.states[from]) {
                let number = *numbers.entry(state).or_insert_with_key(|state| {
                    explored.states.push(state.clone());
                    explored.reached.push(Some((from, action)));
                    explored.before.push(Vec::new());
                    unseen.push_back(explored.states.len() - 1);
                    explored.states.len() - 1
                });
                explored.before[number].push(from);
            }
        }
        explored
    }

    pub(crate) fn count(&self) -> usize {
        self.states.len()
    }

    /// The shortest way to a state of this kind.
    pub(crate) fn way_to(&self, is_such: impl Fn(&S::State) -> bool) -> Option<Vec<S::Action>> {
        self.states.iter().position(is_such).map(|state| self.way(state))
    }

    /// The shortest way to a state from which no state of this kind can be reached any more.
    pub(crate) fn way_to_no(&self, is_such: impl Fn(&S::State) -> bool) -> Option<Vec<S::Action>> {
        let mut can: Vec<_> = self.states.iter().map(is_such).collect();
        let mut unseen: Vec<_> = (0..can.len()).filter(|state| can[*state]).collect();
        while let Some(state) = unseen.pop() {
            for before in &self.before[state] {
                if !std::mem::replace(&mut can[*before], true) {
                    unseen.push(*before);
                }
            }
        }
        can.iter().position(|can| !can).map(|state| self.way(state))
    }

    fn way(&self, mut state: usize) -> Vec<S::Action> {
        let mut way = Vec::new();
        while let Some((from, action)) = &self.reached[state] {
            way.push(action.clone());
            state = *from;
        }
        way.reverse();
        way
    }
}
