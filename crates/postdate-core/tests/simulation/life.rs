//! A process: what it does passes a gate, at which anything may befall it.

use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

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
    /// After how many more passages of the gate something happens.
    ambush: Mutex<Option<(u64, Ambush)>>,
    sprung: Notify,
}

/// What happens to a process in the midst of its work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ambush {
    Kill,
    Freeze(Duration),
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
        }
    }

    /// The gate that everything a process does must pass: shut while it is frozen, and for ever once it is
    /// killed.
    pub(crate) async fn passes(&self) {
        match self.spring() {
            Some(Ambush::Kill) => self.kill(),
            Some(Ambush::Freeze(pause)) => self.freeze(Instant::now() + pause),
            None => {}
        }
        if self.is_killed() {
            std::future::pending::<()>().await;
        }
        while let Some(until) = self.frozen_until() {
            sleep_until(until).await;
        }
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

    fn spring(&self) -> Option<Ambush> {
        let mut ambush = self.ambush.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((passages @ 1.., _)) = &mut *ambush {
            *passages -= 1;
            return None;
        }
        let (_, sprung) = ambush.take()?;
        self.sprung.notify_one();
        Some(sprung)
    }

    /// Something is to happen soon. Answers whether it did, in the time given.
    pub(crate) async fn lie_in_wait(&self, passages: u64, ambush: Ambush, patience: Duration) -> bool {
        *self.ambush.lock().unwrap_or_else(PoisonError::into_inner) = Some((passages, ambush));
        let sprung = tokio::time::timeout(patience, self.sprung.notified()).await.is_ok();
        *self.ambush.lock().unwrap_or_else(PoisonError::into_inner) = None;
        sprung
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
