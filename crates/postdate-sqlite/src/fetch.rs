//! Finding due messages and claiming them.

use std::{collections::HashSet, sync::Arc};

use jiff::Timestamp;
use postdate_core::{Address, DueBatch, DueMessage, FetchDue, MessageId, Operation, StoreError};
use rusqlite::{Connection, OptionalExtension, Statement};

use crate::{
    claim::SqliteClaim,
    error::Result,
    hold::{Held, Hold},
    record::{self, Content},
    store::SqliteStore,
    time::{NEVER, floor_micros, from_micros},
    writer::{Tx, Work},
};

/// A batch ends when its bodies are this large together, in bytes.
const BATCH_BYTES: usize = 16 << 20;

/// The messages of an endpoint up to a time, in the order of their attempts.
pub(crate) const SCAN: &str = "
    SELECT seq, attempt_at, destination FROM message INDEXED BY message_attempt
    WHERE endpoint = ?1 AND attempt_at <= ?2 ORDER BY attempt_at, seq";

const LOAD: &str = "
    SELECT attempt_at, due, failures, destination, id, headers, body FROM message WHERE seq = ?1";

const QUARANTINE: &str = "UPDATE message SET attempt_at = ?2, last_error = ?3 WHERE seq = ?1";

/// What a search passes over.
#[derive(Debug)]
pub(crate) struct Skip {
    held: HashSet<i64>,
    except: HashSet<String>,
}

/// A message that was free when it was seen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    seq: i64,
    attempt_at: i64,
}

#[derive(Debug, Default)]
struct Found {
    candidates: Vec<Candidate>,
    passed_held: bool,
}

/// What was claimed.
#[derive(Debug, Default)]
struct Taken {
    messages: Vec<DueMessage>,
    rows: Vec<(MessageId, i64)>,
    passed_held: bool,
}

impl SqliteStore {
    /// Claims in two steps: a search, which may have to pass over very many messages, on a connection that
    /// reads; then the claim, in a write transaction where nobody can come between. What others have changed
    /// meanwhile is left out there.
    pub(crate) async fn claim_due(&self, request: FetchDue<'_>) -> Result<DueBatch, StoreError> {
        let file = &self.file;
        let now = file.now();
        if !self.may_dispatch().await? {
            return Ok(self.batch(self.new_hold(), Taken::default(), now, true));
        }
        let limit = request.limit.get();
        loop {
            let skip = Skip::new(file.held(Operation::FetchDue, &self.in_flight).await?, request.except);
            let (endpoint, until) = (self.endpoint, floor_micros(now));
            let found = file
                .read(Operation::FetchDue, move |connection| find(connection, endpoint, until, limit, &skip))
                .await?;
            let hold = self.new_hold();
            if found.candidates.is_empty() {
                return Ok(self.batch(hold, Taken::default(), now, found.passed_held));
            }
            let (hold, taken) = file
                .write(Operation::FetchDue, Work::Plain, move |tx| {
                    take(tx, hold.held(), &found.candidates).map(|taken| (hold, taken))
                })
                .await?;
            // Where others took all that was found, there may be more behind it.
            if !taken.messages.is_empty() {
                let contended = found.passed_held || taken.passed_held;
                return Ok(self.batch(hold, taken, now, contended));
            }
        }
    }

    /// The earliest attempt time of what is not passed over.
    pub(crate) async fn earliest(&self, except: &[Address]) -> Result<Option<Timestamp>, StoreError> {
        let skip = Skip::new(self.file.held(Operation::NextDue, &self.in_flight).await?, except);
        let endpoint = self.endpoint;
        let found = self
            .file
            .read(Operation::NextDue, move |connection| find(connection, endpoint, NEVER - 1, 1, &skip))
            .await?;
        Ok(found.candidates.first().map(|candidate| from_micros(candidate.attempt_at)))
    }

    /// Takes the right to dispatch from this file, if nobody else has it.
    async fn may_dispatch(&self) -> Result<bool, StoreError> {
        if self.in_flight.has_lock() {
            return Ok(true);
        }
        let in_flight = Arc::clone(&self.in_flight);
        self.file.write(Operation::FetchDue, Work::Plain, move |_| in_flight.take_lock()).await
    }

    fn new_hold(&self) -> Hold {
        Hold::new(Arc::clone(&self.file), Arc::clone(&self.in_flight), self.endpoint)
    }

    fn batch(&self, hold: Hold, taken: Taken, now: Timestamp, contended: bool) -> DueBatch {
        let claim = Box::new(SqliteClaim::new(hold, taken.rows, self.mode));
        DueBatch { messages: taken.messages, claim, now, contended }
    }
}

impl Skip {
    fn new(held: HashSet<i64>, except: &[Address]) -> Self {
        Self { held, except: except.iter().map(|address| address.as_str().to_owned()).collect() }
    }
}

fn find(connection: &Connection, endpoint: i64, until: i64, limit: usize, skip: &Skip) -> Result<Found> {
    let mut found = Found::default();
    let mut statement = connection.prepare_cached(SCAN)?;
    let mut rows = statement.query([endpoint, until])?;
    while found.candidates.len() < limit
        && let Some(row) = rows.next()?
    {
        let seq = row.get(0)?;
        let excepted = !skip.except.is_empty()
            && row.get_ref(2)?.as_str().is_ok_and(|destination| skip.except.contains(destination));
        if skip.held.contains(&seq) {
            found.passed_held |= !excepted;
        } else if !excepted {
            found.candidates.push(Candidate { seq, attempt_at: row.get(1)? });
        }
    }
    Ok(found)
}

fn take(tx: &mut Tx<'_>, held: &Held, candidates: &[Candidate]) -> Result<Taken> {
    let mut taken = Taken::default();
    let mut bytes = 0;
    let mut statement = tx.connection.prepare_cached(LOAD)?;
    for candidate in candidates {
        if held.is_taken(candidate.seq) {
            taken.passed_held = true;
            continue;
        }
        match load(&mut statement, *candidate, taken.messages.last())? {
            None => {}
            Some(Err(unreadable)) => quarantine(tx, candidate.seq, &unreadable.reason())?,
            Some(Ok(message)) => {
                held.take(candidate.seq);
                bytes += message.message.size();
                taken.rows.push((message.message.id.clone(), candidate.seq));
                taken.messages.push(message);
                if bytes >= BATCH_BYTES {
                    break;
                }
            }
        }
    }
    Ok(taken)
}

/// The message of a row; `None` if it was removed or rescheduled since it was seen.
fn load(
    statement: &mut Statement<'_>,
    candidate: Candidate,
    previous: Option<&DueMessage>,
) -> Result<Option<Content<DueMessage>>> {
    let message = statement
        .query_row([candidate.seq], |row| {
            if row.get::<_, i64>(0)? != candidate.attempt_at {
                return Ok(None);
            }
            let destination =
                record::address(row.get_ref(3)?, previous.map(|previous| &previous.message.destination));
            let destination = match destination {
                Ok(destination) => destination,
                Err(unreadable) => return Ok(Some(Err(unreadable))),
            };
            let (due, failures) = (from_micros(row.get(1)?), record::small_count(row, 2)?);
            let message = record::message(row, 4, destination)?;
            Ok(Some(message.map(|message| DueMessage { message, due, failures })))
        })
        .optional()?;
    Ok(message.flatten())
}

/// Puts a row aside that has no message in it. It stays in listings and can be cancelled.
fn quarantine(tx: &mut Tx<'_>, seq: i64, reason: &str) -> Result<()> {
    tracing::error!(seq, reason, "quarantined a row");
    tx.connection.prepare_cached(QUARANTINE)?.execute((seq, NEVER, reason))?;
    Ok(())
}
