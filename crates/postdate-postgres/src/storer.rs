//! Storing: callers who come at the same time share a statement and a commit.
//!
//! One row for each commit costs thirteen times the processor time of a thousand rows for each. So while one group is
//! on its way the next one gathers. A task of its own does it: a caller who goes away does not cut others off.

mod batch;
mod gather;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use postdate_core::{DelayedMessage, StoreErrorKind};
use sqlx::Connection;
use tokio::sync::oneshot;

use crate::{
    connections::Lent,
    error::{Fault, Result},
    place::{Place, within},
};
pub(crate) use batch::{Batch, Stored, check, check_due, within_transaction};
use batch::{all_or_none, insert};
use gather::Last;

/// What waits to be stored.
#[derive(Debug, Default)]
pub(crate) struct Storer {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Job>,
    is_running: bool,
}

/// A call of somebody who waits for the answer.
#[derive(Debug)]
struct Job {
    endpoint: i32,
    messages: Vec<DelayedMessage>,
    bytes: usize,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Stored>;

impl Storer {
    /// Stores messages, all or none, of which there is at least one.
    pub(crate) async fn store(place: &Arc<Place>, endpoint: i32, messages: &[DelayedMessage]) -> Answer {
        check(messages)?;
        let bytes = messages.iter().map(|message| message.message.size()).sum();
        let (answer, answered) = oneshot::channel();
        if place.storer.submit(Job { endpoint, messages: messages.to_vec(), bytes, answer }) {
            tokio::spawn(run(Running { place: Arc::clone(place), is_done: false }));
        }
        answered.await.unwrap_or_else(|_| {
            let detail =
                "the runtime was shut down meanwhile; store the same again to find out whether it happened";
            Err(Fault::new(StoreErrorKind::Unavailable, detail))
        })
    }

    /// Whether somebody has to begin to work on it.
    fn submit(&self, job: Job) -> bool {
        let mut state = self.state();
        state.waiting.push(job);
        !std::mem::replace(&mut state.is_running, true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that stores, for as long as anything waits.
struct Running {
    place: Arc<Place>,
    is_done: bool,
}

/// If it is cut off those who wait are told, and the next caller begins anew.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_done {
            *self.place.storer.state() = State::default();
        }
    }
}

async fn run(mut running: Running) {
    let place = Arc::clone(&running.place);
    let (mut connection, mut last) = (None, Last::default());
    while let Some(group) = gather::next(&place.storer, &last).await {
        let (began, callers) = (Instant::now(), group.len());
        connection = store_group(&place, connection, group).await;
        last = Last { callers, took: began.elapsed() };
    }
    running.is_done = true;
    if let Some(connection) = connection {
        Lent::give_back(connection);
    }
}

/// Stores a group and answers its callers. Gives the connection back if it is in order.
async fn store_group(place: &Arc<Place>, connection: Option<Lent>, group: Vec<Job>) -> Option<Lent> {
    let together = async {
        let mut connection = match connection {
            Some(connection) => connection,
            None => place.connections.lend().await?,
        };
        let answers = together(place, &mut connection, &group).await?;
        Ok((connection, answers))
    };
    match within(together).await {
        Ok((connection, answers)) => {
            let mut left = Vec::new();
            for (job, answer) in group.into_iter().zip(answers) {
                match answer {
                    Some(stored) => job.answer(place, Ok(stored)),
                    None => left.push(job),
                }
            }
            one_by_one(place, Some(connection), left).await
        }
        // One of them may be to blame: the others should not suffer for it.
        Err(fault) if fault.kind() == StoreErrorKind::Other && group.len() > 1 => {
            one_by_one(place, None, group).await
        }
        Err(fault) if fault.is_collision() => one_by_one(place, None, group).await,
        Err(fault) => {
            group.into_iter().for_each(|job| job.answer(place, Err(fault.clone())));
            None
        }
    }
}

/// Stores all jobs in one statement. No answer for those of which something is there already: nothing of them was
/// stored.
async fn together(place: &Place, connection: &mut Lent, group: &[Job]) -> Result<Vec<Option<Stored>>> {
    let batch =
        Batch::of(group.iter().flat_map(|job| job.messages.iter().map(|message| (job.endpoint, message))));
    if group.iter().all(|job| job.messages.len() == 1) {
        // Each stands for itself, so nothing has ever to be undone.
        let inserted = insert(connection, &place.sql, &batch).await?;
        let (now, dues) = (inserted.now, inserted.dues(&batch).into_iter().enumerate());
        let answer = |(n, due)| (!inserted.missing.contains(&n)).then(|| Stored { now, dues: vec![due] });
        return Ok(dues.map(answer).collect());
    }
    let mut transaction = Connection::begin(&mut **connection).await?;
    let inserted = insert(&mut transaction, &place.sql, &batch).await?;
    if !inserted.missing.is_empty() {
        transaction.rollback().await?;
        return Ok(group.iter().map(|_| None).collect());
    }
    transaction.commit().await?;
    let mut dues = inserted.dues(&batch).into_iter();
    let mut answer =
        |job: &Job| Stored { now: inserted.now, dues: dues.by_ref().take(job.messages.len()).collect() };
    Ok(group.iter().map(|job| Some(answer(job))).collect())
}

async fn one_by_one(place: &Arc<Place>, mut connection: Option<Lent>, jobs: Vec<Job>) -> Option<Lent> {
    for job in jobs {
        let lent = connection.take();
        let alone = async {
            let mut lent = match lent {
                Some(lent) => lent,
                None => place.connections.lend().await?,
            };
            let messages = job.messages.iter().map(|message| (job.endpoint, message));
            let stored = all_or_none(&mut lent, &place.sql, &Batch::of(messages)).await;
            Ok((lent, stored))
        };
        let answer = match within(alone).await {
            Ok((lent, stored)) => {
                connection = (stored.is_ok() || stored.as_ref().is_err_and(Fault::is_answer)).then_some(lent);
                stored
            }
            Err(fault) => Err(fault),
        };
        job.answer(place, answer);
    }
    connection
}

impl Job {
    fn answer(self, place: &Arc<Place>, answer: Answer) {
        if let Ok(stored) = &answer {
            let dues = stored.dues.iter().copied();
            let destinations = self.messages.iter().map(|message| &message.message.destination);
            place.told(self.endpoint, stored.now, dues.zip(destinations));
        }
        // Whoever asked may have gone.
        let _ = self.answer.send(answer);
    }
}
