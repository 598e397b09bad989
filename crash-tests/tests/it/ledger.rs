//! What was begun and what was acknowledged, and where every message may be after a crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use crash_tests::Disk;

/// Where a message is, seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) stored: Option<Stored>,
    /// The queues with a copy of it, in order of name.
    pub(crate) queued: Vec<&'static str>,
}

/// A message in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stored {
    /// In seconds since 1970.
    pub(crate) due: i64,
    pub(crate) failures: u32,
}

/// What a call does to a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Stores it unless it is there.
    Store { due: i64 },
    /// Takes it out of the store.
    Remove,
    /// Counts a failure.
    Fail,
    /// Gives it another due time.
    Reschedule { due: i64 },
    /// Puts a copy into a queue.
    Send(&'static str),
    /// Takes a copy out of a queue.
    Take(&'static str),
}

/// The changes of one call, which happen all or none.
pub(crate) type Step = Vec<(String, Vec<Change>)>;

/// All steps of a workload, with marks in the log of its disk.
#[derive(Debug)]
pub(crate) struct Ledger {
    disk: Arc<Disk>,
    initial: BTreeMap<String, State>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    steps: Vec<Step>,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Begun(usize),
    Acknowledged(usize),
    Failed(usize),
}

/// What may be found after a crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected(BTreeMap<String, Knowledge>);

#[derive(Clone, Debug)]
struct Knowledge {
    before: BTreeSet<State>,
    last: Option<Last>,
}

/// The last step of a message, which may or may not have happened.
#[derive(Clone, Debug)]
struct Last {
    step: usize,
    failed: bool,
    after: BTreeSet<State>,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It is nowhere.
    Lost(String),
    /// It is where it must not be (any more).
    Misplaced(String, State),
    /// It is there and nobody has stored it.
    Invented(String),
    /// A step happened for some messages and not for others.
    Split(Vec<String>),
}

impl Ledger {
    pub(crate) fn new(disk: &Arc<Disk>, initial: BTreeMap<String, State>) -> Self {
        Self { disk: Arc::clone(disk), initial, book: Mutex::default() }
    }

    /// Does `call`, which makes these changes.
    pub(crate) async fn step<T, E>(
        &self,
        step: Step,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let number = {
            let mut book = self.book.lock().unwrap();
            book.steps.push(step);
            book.steps.len() - 1
        };
        self.note(Event::Begun(number));
        let answer = call.await;
        self.note(if answer.is_ok() { Event::Acknowledged(number) } else { Event::Failed(number) });
        answer
    }

    fn note(&self, event: Event) {
        let mut book = self.book.lock().unwrap();
        self.disk.mark(book.events.len() as u64);
        book.events.push(event);
    }

    /// What may be found after a crash before which these marks were set.
    pub(crate) fn expected(&self, marks: impl Iterator<Item = u64>) -> Expected {
        let book = self.book.lock().unwrap();
        let mut expected = Expected::from(&self.initial);
        for mark in marks {
            match book.events[usize::try_from(mark).unwrap()] {
                Event::Begun(step) => expected.begin(step, &book.steps[step]),
                Event::Acknowledged(step) => expected.acknowledge(step, &book.steps[step]),
                Event::Failed(step) => expected.fail(step, &book.steps[step]),
            }
        }
        expected
    }
}

impl From<&BTreeMap<String, State>> for Expected {
    fn from(states: &BTreeMap<String, State>) -> Self {
        let known = |(name, state): (&String, &State)| {
            (name.clone(), Knowledge { before: BTreeSet::from([state.clone()]), last: None })
        };
        Self(states.iter().map(known).collect())
    }
}

impl Expected {
    fn begin(&mut self, step: usize, changes: &Step) {
        for (name, changes) in changes {
            let known = self
                .0
                .entry(name.clone())
                .or_insert_with(|| Knowledge { before: BTreeSet::from([State::default()]), last: None });
            // Who begins this has seen what the step before it did, unless that failed.
            known.close();
            let after = known.before.iter().map(|state| state.after(changes)).collect();
            known.last = Some(Last { step, failed: false, after });
        }
    }

    fn acknowledge(&mut self, step: usize, changes: &Step) {
        for (name, _) in changes {
            let known = self.0.get_mut(name).unwrap();
            if known.last.as_ref().is_some_and(|last| last.step == step) {
                known.close();
            }
        }
    }

    fn fail(&mut self, step: usize, changes: &Step) {
        for (name, _) in changes {
            if let Some(last) = self.0.get_mut(name).and_then(|known| known.last.as_mut())
                && last.step == step
            {
                last.failed = true;
            }
        }
    }

    /// What is wrong with what was found.
    pub(crate) fn judge(&self, found: &BTreeMap<String, State>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, known) in &self.0 {
            let state = found.get(name).cloned().unwrap_or_default();
            let after = known.last.iter().flat_map(|last| &last.after);
            if known.before.iter().chain(after).any(|allowed| *allowed == state) {
                continue;
            }
            findings.push(match state == State::default() {
                true => Finding::Lost(name.clone()),
                false => Finding::Misplaced(name.clone(), state),
            });
        }
        let invented = found.keys().filter(|name| !self.0.contains_key(*name));
        findings.extend(invented.cloned().map(Finding::Invented));
        findings.extend(self.split(found));
        findings
    }

    fn split(&self, found: &BTreeMap<String, State>) -> impl Iterator<Item = Finding> {
        let mut happened: BTreeMap<usize, BTreeMap<bool, Vec<String>>> = BTreeMap::new();
        for (name, known) in &self.0 {
            let Some(last) = &known.last else { continue };
            let state = found.get(name).cloned().unwrap_or_default();
            let (was, is) = (known.before.contains(&state), last.after.contains(&state));
            if was != is {
                happened.entry(last.step).or_default().entry(is).or_default().push(name.clone());
            }
        }
        happened
            .into_values()
            .filter(|sides| sides.len() == 2)
            .map(|mut sides| Finding::Split(sides.remove(&true).unwrap_or_default()))
    }
}

impl Knowledge {
    fn close(&mut self) {
        let Some(Last { failed, after, .. }) = self.last.take() else { return };
        if failed {
            self.before.extend(after);
        } else {
            self.before = after;
        }
    }
}

impl State {
    fn after(&self, changes: &[Change]) -> Self {
        let mut state = self.clone();
        for change in changes {
            match *change {
                Change::Store { due } => {
                    state.stored.get_or_insert(Stored { due, failures: 0 });
                }
                Change::Remove => state.stored = None,
                Change::Fail => state.stored.iter_mut().for_each(|stored| stored.failures += 1),
                Change::Reschedule { due } => state.stored.iter_mut().for_each(|stored| stored.due = due),
                Change::Send(queue) => {
                    state.queued.push(queue);
                    state.queued.sort_unstable();
                }
                Change::Take(queue) => {
                    if let Some(place) = state.queued.iter().position(|other| *other == queue) {
                        state.queued.remove(place);
                    }
                }
            }
        }
        state
    }
}

const STORED: State = State { stored: Some(Stored { due: 1, failures: 0 }), queued: Vec::new() };

/// Two messages of one step, seen after each of its events.
fn expectations(outcome: Option<Event>) -> Expected {
    let step: Step =
        ["a", "b"].map(|name| (name.to_owned(), vec![Change::Remove, Change::Send("billing")])).into();
    let initial = BTreeMap::from([("a".to_owned(), STORED), ("b".to_owned(), STORED)]);
    let mut expected = Expected::from(&initial);
    expected.begin(0, &step);
    match outcome {
        Some(Event::Acknowledged(_)) => expected.acknowledge(0, &step),
        Some(Event::Failed(_)) => expected.fail(0, &step),
        _ => {}
    }
    expected
}

fn found(states: [&State; 2]) -> BTreeMap<String, State> {
    ["a".to_owned(), "b".to_owned()].into_iter().zip(states.map(State::clone)).collect()
}

#[test]
fn what_was_begun_may_have_happened_for_all_or_for_none() {
    let sent = State { stored: None, queued: vec!["billing"] };
    for outcome in [None, Some(Event::Failed(0))] {
        let expected = expectations(outcome);
        assert_eq!(expected.judge(&found([&STORED, &STORED])), []);
        assert_eq!(expected.judge(&found([&sent, &sent])), []);
        assert_eq!(expected.judge(&found([&sent, &STORED])), [Finding::Split(vec!["a".to_owned()])]);
    }
}

#[test]
fn what_was_acknowledged_must_have_happened() {
    let sent = State { stored: None, queued: vec!["billing"] };
    let both = State { queued: vec!["billing"], ..STORED };
    let expected = expectations(Some(Event::Acknowledged(0)));
    assert_eq!(expected.judge(&found([&sent, &sent])), []);
    let nowhere = State::default();
    let wrong = [Finding::Misplaced("a".to_owned(), both.clone()), Finding::Lost("b".to_owned())];
    assert_eq!(expected.judge(&found([&both, &nowhere])), wrong);
    let mut invented = found([&sent, &sent]);
    invented.insert("c".to_owned(), STORED);
    assert_eq!(expected.judge(&invented), [Finding::Invented("c".to_owned())]);
}
