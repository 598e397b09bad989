//! Finding due messages and claiming them.

use std::{sync::Arc, time::Instant};

use postdate_core::{Address, DueBatch, DueMessage, FetchDue, MessageId, TransactionMode};
use sqlx::{Row, postgres::PgRow};

use crate::{
    claim::{Held, PostgresClaim},
    error::Result,
    position::{FRONT, Place},
    record::{self, Content},
    sql::query,
    store::Shared,
    time::{PgInstant, Tid},
    transaction::PostgresTransaction,
};

/// A batch ends when its bodies are this large together, in bytes.
pub(crate) const BATCH_BYTES: i64 = 16 << 20;

/// What one or several searches found.
#[derive(Debug, Default)]
struct Found {
    now: Option<PgInstant>,
    rows: Vec<FoundRow>,
    /// Whether the bodies are as large together as those of a batch may be.
    is_heavy: bool,
    unreadable: Vec<(i64, String)>,
}

#[derive(Debug)]
struct FoundRow {
    place: Place,
    tid: Option<Tid>,
    message: DueMessage,
}

/// Claims messages. Rows that cannot be read are put aside first, in a transaction that is their own: what is done with
/// a claim may be undone.
///
/// A search locks as many as it may find, also those that are too large to come along. So many are not asked for again,
/// now or the next time: nobody should hold what he does not know of.
pub(crate) async fn claim_due(shared: &Arc<Shared>, request: FetchDue<'_>) -> Result<DueBatch> {
    let mut limit = shared.usual_limit().min(request.limit.get());
    loop {
        let began = Instant::now();
        let mut transaction = PostgresTransaction::begin(&shared.place).await?;
        let except: Vec<&str> = request.except.iter().map(Address::as_str).collect();
        let (found, contended) = find(shared, &mut transaction, limit, &except).await?;
        if !found.unreadable.is_empty() {
            quarantine(shared, transaction, found.unreadable).await?;
            continue;
        }
        shared.note_sizes(found.rows.len(), found.bytes());
        if found.is_heavy && found.rows.len() < limit {
            limit = found.rows.len();
            transaction.roll_back().await?;
            shared.position.reset();
            continue;
        }
        let now = found.now.unwrap_or(PgInstant::NEVER).timestamp();
        let expires = began.checked_add(shared.place.claim_limit);
        let (messages, held) = found.into_batch();
        let transaction = if messages.is_empty() && shared.mode != TransactionMode::TransactionScope {
            transaction.roll_back().await?;
            None
        } else {
            Some(transaction)
        };
        let claim = Box::new(PostgresClaim::new(Arc::clone(shared), transaction, held, expires));
        return Ok(DueBatch { messages, claim, now, contended });
    }
}

/// Searches until the batch is full or nothing is free any more; answers with whether others hold the rest.
async fn find(
    shared: &Shared,
    transaction: &mut PostgresTransaction,
    limit: usize,
    except: &[&str],
) -> Result<(Found, bool)> {
    let mut found = Found::default();
    let mut from = shared.position.next(Instant::now());
    loop {
        let before = found.rows.len();
        search(shared, transaction, &mut found, from, limit - before, except).await?;
        if found.rows.len() >= limit || found.is_heavy || !found.unreadable.is_empty() {
            return Ok((found, false));
        }
        shared.position.reset();
        if from != FRONT {
            from = FRONT;
            continue;
        }
        if !is_more_due(shared, transaction, &found, except).await? {
            return Ok((found, false));
        }
        if found.rows.len() == before {
            return Ok((found, true));
        }
    }
}

async fn search(
    shared: &Shared,
    transaction: &mut PostgresTransaction,
    found: &mut Found,
    from: Place,
    limit: usize,
    except: &[&str],
) -> Result<()> {
    let began = Instant::now();
    let mine: Vec<i64> = found.rows.iter().map(|row| row.place.1).collect();
    let rows = query(&shared.place.sql.fetch)
        .bind(shared.endpoint)
        .bind(from.0)
        .bind(from.1)
        .bind(except)
        .bind(mine)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(BATCH_BYTES)
        .bind(from == FRONT)
        .fetch_all(transaction.connection())
        .await?;
    let took = began.elapsed();
    let before = found.rows.len();
    for row in &rows {
        // What the last search found may not have been due at the first.
        found.now = Some(row.try_get_unchecked(0)?);
        if let Some(seq) = row.try_get::<Option<i64>, _>(1)? {
            found.add(row, seq)?;
        }
    }
    let new = &found.rows[before..];
    let bytes: usize = new.iter().map(|row| row.message.message.size()).sum();
    found.is_heavy = i64::try_from(bytes).is_ok_and(|bytes| bytes >= BATCH_BYTES);
    let (count, last) = (new.len(), new.last().map(|row| row.place));
    shared.position.note(from, began, took, count, last);
    Ok(())
}

impl Found {
    fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.message.message.size()).sum()
    }

    fn add(&mut self, row: &PgRow, seq: i64) -> Result<()> {
        let place = (row.try_get_unchecked(3)?, seq);
        match message(row, self.rows.last().map(|row| &row.message.message.destination))? {
            Ok(message) => self.rows.push(FoundRow { place, tid: row.try_get_unchecked(2)?, message }),
            Err(unreadable) => self.unreadable.push((seq, unreadable.reason())),
        }
        Ok(())
    }

    /// The messages in order, and how to find their rows again.
    fn into_batch(mut self) -> (Vec<DueMessage>, Vec<(MessageId, Held)>) {
        self.rows.sort_by_key(|row| row.place);
        let batch = self.rows.into_iter().map(|row| {
            let held = (row.message.message.id.clone(), Held { tid: row.tid });
            (row.message, held)
        });
        batch.unzip()
    }
}

fn message(row: &PgRow, previous: Option<&Address>) -> sqlx::Result<Content<DueMessage>> {
    let destination = match record::address(row, 6, previous)? {
        Ok(destination) => destination,
        Err(unreadable) => return Ok(Err(unreadable)),
    };
    let due: PgInstant = row.try_get_unchecked(4)?;
    let failures = record::small_count(row, 5)?;
    let message = record::message(row, 7, destination)?;
    Ok(message.map(|message| DueMessage { message, due: due.timestamp(), failures }))
}

async fn is_more_due(
    shared: &Shared,
    transaction: &mut PostgresTransaction,
    found: &Found,
    except: &[&str],
) -> Result<bool> {
    let mine: Vec<i64> = found.rows.iter().map(|row| row.place.1).collect();
    let row = query(&shared.place.sql.more_due)
        .bind(shared.endpoint)
        .bind(found.now.unwrap_or(PgInstant::BEFORE_ALL))
        .bind(except)
        .bind(mine)
        .fetch_one(transaction.connection())
        .await?;
    Ok(row.try_get(0)?)
}

async fn quarantine(
    shared: &Shared,
    mut transaction: PostgresTransaction,
    unreadable: Vec<(i64, String)>,
) -> Result<()> {
    for (seq, reason) in &unreadable {
        tracing::error!(seq, reason, "quarantined a row");
    }
    let (seqs, reasons): (Vec<i64>, Vec<String>) = unreadable.into_iter().unzip();
    query(&shared.place.sql.quarantine)
        .bind(shared.endpoint)
        .bind(seqs)
        .bind(reasons)
        .execute(transaction.connection())
        .await?;
    transaction.commit().await.map(drop)
}
