//! A process: what it does passes a gate, at which anything may befall it.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use postdate_core::Operation;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::destinations::Role;

/// One process, from its start to its end.
#[derive(Debug)]
pub(crate) struct Life {
    pub node: usize,
    /// Unique among all lives.
    pub number: u32,
    /// Wakes the process after a change of its own.
    pub own_change: Notify,
    // Not a watch channel: that wakes those who wait in an order of its own choice.
    ending: Notify,
    ended: AtomicBool,
    killed: AtomicBool,
    disturbed: AtomicBool,
    frozen_until: Mutex<Option<Instant>>,
    ambush: Mutex<Option<(Trigger, Ambush)>>,
    sprung: Notify,
    struck_at: Mutex<Option<Spot>>,
}

/// A point in the work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spot {
    Call(Operation, Side),
    Send(Role, Side),
    Woken,
    /// Anywhere: whatever it waits for.
    Between,
}

/// A point of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Before,
    /// The request is on its way and has its effect; nobody waits for the answer.
    During,
    After,
}

/// When it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trigger {
    /// After so many more passages.
    pub passages: u64,
    /// Of this point; none for all.
    pub spot: Option<Spot>,
}

/// What happens to a process in the midst of its work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ambush {
    Kill,
    Freeze(Duration),
}

impl Spot {
    /// Those at which something happens in every long search.
    pub(crate) fn all() -> Vec<Self> {
        let operations = [
            Operation::FetchDue,
            Operation::NextDue,
            Operation::Remove,
            Operation::IncrementFailureCount,
            Operation::Release,
            Operation::Renew,
            Operation::Commit,
            Operation::Query,
            Operation::Store,
            Operation::Cancel,
            Operation::Reschedule,
            Operation::Receive,
            Operation::Settle,
        ];
        let roles = [Role::Destinations, Role::ErrorQueue];
        let mut all = vec![Self::Woken, Self::Between];
        for side in [Side::Before, Side::During, Side::After] {
            all.extend(operations.map(|operation| Self::Call(operation, side)));
            all.extend(roles.map(|role| Self::Send(role, side)));
        }
        all
    }
}

impl Spot {
    pub(crate) fn operation(self) -> Option<Operation> {
        match self {
            Self::Call(operation, _) => Some(operation),
            Self::Send(..) | Self::Woken | Self::Between => None,
        }
    }

    /// Renewals need a slow destination, and queries an error queue that was away.
    pub(crate) fn is_rare(self) -> bool {
        matches!(self.operation(), Some(Operation::Renew | Operation::Query))
    }
}

impl Life {
    pub(crate) fn new(node: usize, number: u32) -> Self {
        Self {
            node,
            number,
            own_change: Notify::new(),
            ending: Notify::new(),
            ended: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            disturbed: AtomicBool::new(false),
            frozen_until: Mutex::default(),
            ambush: Mutex::default(),
            sprung: Notify::new(),
            struck_at: Mutex::default(),
        }
    }

    /// The gate that everything a process does must pass: shut while it is frozen, and for ever once it is
    /// killed.
    pub(crate) async fn passes(&self, spot: Spot) {
        self.reaches(spot);
        if self.is_killed() {
            std::future::pending::<()>().await;
        }
        while let Some(until) = self.frozen_until() {
            sleep_until(until).await;
        }
    }

    /// Comes to a point at which something may befall it, and goes on all the same: that cannot be stopped.
    pub(crate) fn reaches(&self, spot: Spot) {
        let Some(ambush) = self.spring(spot) else { return };
        *self.struck_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(spot);
        match ambush {
            Ambush::Kill => self.kill(),
            Ambush::Freeze(pause) => self.freeze(Instant::now() + pause),
        }
        self.sprung.notify_one();
    }

    pub(crate) fn kill(&self) {
        self.killed.store(true, Relaxed);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }

    pub(crate) fn is_disturbed_for_the_first_time(&self) -> bool {
        !self.disturbed.swap(true, Relaxed)
    }

    fn spring(&self, at: Spot) -> Option<Ambush> {
        let mut ambush = self.ambush.lock().unwrap_or_else(PoisonError::into_inner);
        let (trigger, _) = ambush.as_mut()?;
        if trigger.spot.is_some_and(|spot| spot != at) {
            return None;
        }
        if trigger.passages > 0 {
            trigger.passages -= 1;
            return None;
        }
        ambush.take().map(|(_, sprung)| sprung)
    }

    /// Something is to happen soon. Answers where it did, if it did in the time given.
    pub(crate) async fn lie_in_wait(
        &self,
        trigger: Trigger,
        ambush: Ambush,
        patience: Duration,
    ) -> Option<Spot> {
        *self.ambush.lock().unwrap_or_else(PoisonError::into_inner) = Some((trigger, ambush));
        let sprung = tokio::time::timeout(patience, self.sprung.notified()).await;
        *self.ambush.lock().unwrap_or_else(PoisonError::into_inner) = None;
        sprung.ok()?;
        self.struck_at.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn freeze(&self, until: Instant) {
        *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    fn frozen_until(&self) -> Option<Instant> {
        let until = *self.frozen_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| *until > Instant::now())
    }

    /// It serves clients no more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
        self.ending.notify_waiters();
    }

    /// Completes when this process does not serve clients any more.
    pub(crate) async fn ended(&self) {
        let ending = self.ending.notified();
        if !self.ended.load(Relaxed) {
            ending.await;
        }
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}.{}", self.node, self.number)
    }
}
