//! A piece of work in a shared transaction.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use postdate_core::{Address, StoreErrorKind, wake::Topic};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{
    error::{Fault, Result},
    file::Shared,
};

const PANICKED: &str = "the work panicked and was rolled back; report this with the message of the panic";

/// How a piece of work behaves in a transaction that it shares with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// It writes, and once it has written only the database itself can make it fail.
    Plain,
    /// It may change its mind after it has written: it gets a savepoint to go back to. That costs a copy of
    /// every page it touches.
    Undoable,
}

/// What a piece of work sees: the connection within the transaction, and what is to happen after the commit.
pub(crate) struct Tx<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) shared: &'a Shared,
    effects: Effects,
}

type After = Box<dyn FnOnce() + Send>;

/// What happens after the commit, on the writer thread: so it happens even if the caller has gone away.
#[derive(Default)]
pub(super) struct Effects {
    after: Vec<After>,
    /// The earliest time for each topic and destination, or for all destinations.
    rings: HashMap<(Topic, Option<Address>), i64>,
}

impl<'a> Tx<'a> {
    pub(super) fn new(connection: &'a Connection, shared: &'a Shared) -> Self {
        Self { connection, shared, effects: Effects::default() }
    }

    /// After the commit, `action`.
    pub(crate) fn after_commit(&mut self, action: impl FnOnce() + Send + 'static) {
        self.effects.after.push(Box::new(action));
    }

    /// After the commit, those are woken who wait for `topic` and something before `time`.
    pub(crate) fn ring(&mut self, topic: Topic, time: i64) {
        self.effects.ring(topic, time, None);
    }

    /// The same, except for those who do not care about this destination.
    pub(crate) fn ring_for(&mut self, topic: Topic, time: i64, destination: &Address) {
        self.effects.ring(topic, time, Some(destination.clone()));
    }

    pub(super) fn into_effects(self) -> Effects {
        self.effects
    }
}

impl Effects {
    fn ring(&mut self, topic: Topic, time: i64, destination: Option<Address>) {
        let earliest = self.rings.entry((topic, destination)).or_insert(time);
        *earliest = time.min(*earliest);
    }

    pub(super) fn apply(self, shared: &Shared) {
        self.after.into_iter().for_each(|action| action());
        for ((topic, destination), time) in self.rings {
            shared.wakes.ring(topic, time, destination.as_ref());
        }
    }
}

/// Work without its types.
pub(super) trait Job: Send {
    fn work(&self) -> Work;

    /// Whether anybody still waits for the answer.
    fn is_wanted(&self) -> bool;

    /// Whether there is a caller, who may come straight back with more.
    fn has_caller(&self) -> bool;

    /// Does the work and keeps the outcome.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()>;

    /// Gives the outcome to the caller, or what went wrong with the transaction.
    fn answer(self: Box<Self>, broken: Option<&Fault>);
}

/// Work and the one who waits for it.
pub(super) struct Task<T, F> {
    work: Work,
    run: Option<F>,
    outcome: Option<Result<T>>,
    caller: Option<oneshot::Sender<Result<T>>>,
}

impl<T, F> Task<T, F>
where
    F: FnOnce(&mut Tx<'_>) -> Result<T>,
{
    pub(super) fn new(work: Work, run: F) -> (Self, oneshot::Receiver<Result<T>>) {
        let (caller, answer) = oneshot::channel();
        (Self { work, run: Some(run), outcome: None, caller: Some(caller) }, answer)
    }

    pub(super) fn unasked(work: Work, run: F) -> Self {
        Self { work, run: Some(run), outcome: None, caller: None }
    }
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnOnce(&mut Tx<'_>) -> Result<T> + Send,
{
    fn work(&self) -> Work {
        self.work
    }

    fn is_wanted(&self) -> bool {
        self.caller.as_ref().is_none_or(|caller| !caller.is_closed())
    }

    fn has_caller(&self) -> bool {
        self.caller.is_some()
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        // A closure that was unwound is gone, and what it wrote is rolled back: nothing half-done is seen again.
        let outcome = catch_unwind(AssertUnwindSafe(|| run(tx)))
            .unwrap_or_else(|_| Err(Fault::new(StoreErrorKind::Other, PANICKED)));
        let told = outcome.as_ref().map(drop).map_err(Clone::clone);
        self.outcome = Some(outcome);
        told
    }

    fn answer(self: Box<Self>, broken: Option<&Fault>) {
        let outcome = match broken {
            Some(fault) => Some(Err(fault.clone())),
            None => self.outcome,
        };
        if let (Some(caller), Some(outcome)) = (self.caller, outcome) {
            // A caller that has gone away drops the outcome, and with it whatever that holds.
            drop(caller.send(outcome));
        }
    }
}
