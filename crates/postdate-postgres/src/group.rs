//! Callers who come at the same time share a statement and a commit.
//!
//! One row for each commit costs thirteen times the processor time of a thousand rows for each. So while one group is
//! on its way the next one gathers. A task of its own does the work: a caller who goes away does not cut others off.

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    connections::Lent,
    error::{Fault, Result},
    place::Place,
};

/// No statement holds more: those behind should not wait for ever.
const MOST_MESSAGES: usize = 1_000;
const MOST_BYTES: usize = 4 << 20;

/// How long to wait, at most, for callers of the last group who come straight back with more. It is less than the last
/// group took, or waiting would cost more than it saves.
const PATIENCE: Duration = Duration::from_micros(500);

/// A call of somebody who waits for the answer.
pub(crate) trait Job: Send + Sized + 'static {
    /// So many messages.
    fn messages(&self) -> usize;

    /// So many bytes.
    fn bytes(&self) -> usize;

    /// Where jobs of this kind wait.
    fn waiting(place: &Place) -> &Waiting<Self>;

    /// Does a group and answers its callers. Gives the connection back if it is in order.
    fn work(
        place: &Arc<Place>,
        connection: Option<Lent>,
        group: Vec<Self>,
    ) -> impl Future<Output = Option<Lent>> + Send;
}

/// The jobs that wait.
#[derive(Debug)]
pub(crate) struct Waiting<J>(Mutex<State<J>>);

#[derive(Debug)]
struct State<J> {
    jobs: Vec<J>,
    is_running: bool,
}

/// The group before.
#[derive(Debug, Default)]
struct Last {
    callers: usize,
    took: Duration,
}

/// Has a job done, which answers through the sender that it is made with.
pub(crate) async fn answer<J: Job, T>(
    place: &Arc<Place>,
    job: impl FnOnce(oneshot::Sender<Result<T>>) -> J,
) -> Result<T> {
    let (answer, answered) = oneshot::channel();
    if J::waiting(place).submit(job(answer)) {
        tokio::spawn(run(Running::<J> { place: Arc::clone(place), is_done: false, jobs: PhantomData }));
    }
    answered.await.unwrap_or_else(|_| Err(Fault::interrupted()))
}

impl<J> Default for Waiting<J> {
    fn default() -> Self {
        Self(Mutex::new(State { jobs: Vec::new(), is_running: false }))
    }
}

impl<J: Job> Waiting<J> {
    /// Whether somebody has to begin to work on it.
    fn submit(&self, job: J) -> bool {
        let mut state = self.state();
        state.jobs.push(job);
        !std::mem::replace(&mut state.is_running, true)
    }

    /// The next group; `None` when nobody waits any more, and then whoever comes has to begin anew.
    ///
    /// Callers in a loop come back a moment after they were answered. Without patience the first of them would get
    /// a commit of its own, and the others the next: groups of one and of seven in turn, at twice the cost. One that is
    /// alone is never made to wait.
    async fn next(&self, last: &Last) -> Option<Vec<J>> {
        if last.callers > 1 {
            let end = Instant::now() + (last.took / 2).min(PATIENCE);
            // The timers of the runtime are too coarse for this. Others get the processor meanwhile.
            while self.state().jobs.len() < last.callers && Instant::now() < end {
                tokio::task::yield_now().await;
            }
        }
        let mut state = self.state();
        if state.jobs.is_empty() {
            state.is_running = false;
            return None;
        }
        let (mut messages, mut bytes) = (0, 0);
        let fits = state.jobs.iter().take_while(|job| {
            let is_first = messages == 0;
            messages += job.messages();
            bytes += job.bytes();
            is_first || (messages <= MOST_MESSAGES && bytes <= MOST_BYTES)
        });
        let count = fits.count();
        Some(state.jobs.drain(..count).collect())
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that works, for as long as anything waits.
struct Running<J: Job> {
    place: Arc<Place>,
    is_done: bool,
    jobs: PhantomData<fn() -> J>,
}

/// If it is cut off those who wait are told, and the next caller begins anew.
impl<J: Job> Drop for Running<J> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = J::waiting(&self.place).state();
            state.jobs.clear();
            state.is_running = false;
        }
    }
}

async fn run<J: Job>(mut running: Running<J>) {
    let place = Arc::clone(&running.place);
    let (mut connection, mut last) = (None, Last::default());
    while let Some(group) = J::waiting(&place).next(&last).await {
        let (began, callers) = (Instant::now(), group.len());
        connection = J::work(&place, connection, group).await;
        last = Last { callers, took: began.elapsed() };
    }
    running.is_done = true;
    if let Some(connection) = connection {
        Lent::give_back(connection);
    }
}
