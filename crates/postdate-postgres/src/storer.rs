//! Storing.

mod batch;

use std::sync::Arc;

use postdate_core::{DelayedMessage, StoreErrorKind};
use tokio::sync::oneshot;

use crate::{
    connections::Lent,
    error::{Fault, Result},
    group::{self, Waiting},
    place::{Place, within},
};
pub(crate) use batch::{Batch, Stored, check, check_due, within_transaction};
use batch::{Inserted, all_or_none, insert, insert_new};

/// A call of somebody who stores.
#[derive(Debug)]
pub(crate) struct Job {
    endpoint: i32,
    messages: Vec<DelayedMessage>,
    bytes: usize,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Stored>;

/// Stores messages, all or none, of which there is at least one.
pub(crate) async fn store(place: &Arc<Place>, endpoint: i32, messages: &[DelayedMessage]) -> Answer {
    check(messages)?;
    let bytes = messages.iter().map(|message| message.message.size()).sum();
    group::answer(place, |answer| Job { endpoint, messages: messages.to_vec(), bytes, answer }).await
}

impl group::Job for Job {
    fn messages(&self) -> usize {
        self.messages.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn waiting(place: &Place) -> &Waiting<Self> {
        &place.stores
    }

    async fn work(place: &Arc<Place>, connection: Option<Lent>, group: Vec<Self>) -> Option<Lent> {
        store_group(place, connection, group).await
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
    let Some(now) = insert_new(connection, &place.sql, &batch).await? else {
        return carefully(place, connection, group, &batch).await;
    };
    let mut dues = batch.dues(now).into_iter();
    let mut answer = |job: &Job| Stored { now, dues: dues.by_ref().take(job.messages.len()).collect() };
    Ok(group.iter().map(|job| Some(answer(job))).collect())
}

/// The same where something is there already.
async fn carefully(
    place: &Place,
    connection: &mut Lent,
    group: &[Job],
    batch: &Batch<'_>,
) -> Result<Vec<Option<Stored>>> {
    if group.iter().all(|job| job.messages.len() == 1) {
        // Each stands for itself, so nothing has ever to be undone.
        let Inserted { now, missing } = insert(connection, &place.sql, batch).await?;
        let answer = |(n, due)| (!missing.contains(&n)).then(|| Stored { now, dues: vec![due] });
        return Ok(batch.dues(now).into_iter().enumerate().map(answer).collect());
    }
    Ok(group.iter().map(|_| None).collect())
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
