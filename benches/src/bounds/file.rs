//! The file that the bounds share, and the statements on it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use postdate_core::DelayedMessage;
use rusqlite::{Connection, Result, Transaction, params};

use crate::workload::due;

// As in `postdate-sqlite`: the ratios would say nothing otherwise.
const PAGE_BYTES: u32 = 4_096;
const CACHE_KIB: i32 = 16_384;
const AUTOCHECKPOINT_PAGES: u32 = 10_000;
const LOG_BYTES: u32 = 64 << 20;

const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

const INSERT: &str = "INSERT INTO message (id, destination, due, headers, body) VALUES (?1, ?2, ?3, ?4, ?5)";
const SELECT_DUE: &str = "SELECT seq, id, destination, due, headers, body FROM message WHERE due <= ?1 \
                          ORDER BY due, seq LIMIT ?2";
const EARLIEST: &str = "SELECT min(due) FROM message";
const DELETE: &str = "DELETE FROM message WHERE seq = ?1";
const ENQUEUE: &str = "INSERT INTO queued (queue, id, headers, body) VALUES (?1, ?2, ?3, ?4)";

/// A database file with the tables of the bounds.
#[derive(Clone, Debug)]
pub(crate) struct File(PathBuf);

/// A row that is due.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) destination: String,
    pub(crate) due: i64,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl File {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = Self(path.to_owned());
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "page_size", PAGE_BYTES)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.execute_batch(include_str!("schema.sql"))?;
        Ok(file)
    }

    /// A connection that commits durably, as all that are measured do.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.0)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", AUTOCHECKPOINT_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        Ok(connection)
    }
}

pub(crate) fn insert(transaction: &Transaction<'_>, messages: &[DelayedMessage]) -> Result<()> {
    let mut insert = transaction.prepare_cached(INSERT)?;
    for delayed in messages {
        let message = &delayed.message;
        let (headers, body) = (&message.headers.as_bytes()[..], &message.body[..]);
        insert.execute(params![
            message.id.as_str(),
            message.destination.as_str(),
            due(delayed).as_microsecond(),
            headers,
            body
        ])?;
    }
    Ok(())
}

pub(crate) fn select_due(connection: &Connection, now: i64, limit: u32) -> Result<Vec<Row>> {
    let mut select = connection.prepare_cached(SELECT_DUE)?;
    let rows = select.query_map(params![now, limit], |row| {
        Ok(Row {
            seq: row.get(0)?,
            id: row.get(1)?,
            destination: row.get(2)?,
            due: row.get(3)?,
            headers: row.get(4)?,
            body: row.get(5)?,
        })
    })?;
    rows.collect()
}

pub(crate) fn earliest(connection: &Connection) -> Result<Option<i64>> {
    connection.prepare_cached(EARLIEST)?.query_row([], |row| row.get(0))
}

pub(crate) fn delete(transaction: &Transaction<'_>, rows: &[Row]) -> Result<()> {
    let mut delete = transaction.prepare_cached(DELETE)?;
    rows.iter().try_for_each(|row| delete.execute([row.seq]).map(drop))
}

pub(crate) fn enqueue(transaction: &Transaction<'_>, rows: &[Row]) -> Result<()> {
    let mut enqueue = transaction.prepare_cached(ENQUEUE)?;
    let mut insert = |row: &Row| enqueue.execute(params![row.destination, row.id, row.headers, row.body]);
    rows.iter().try_for_each(|row| insert(row).map(drop))
}
