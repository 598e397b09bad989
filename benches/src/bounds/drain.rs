//! Select what is due, dispatch it, delete it, commit; until nothing is due any more.

use std::hint::black_box;

use anyhow::Result;
use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior};

use super::file::{delete, enqueue, select_due};
use crate::cpu::{Measured, Stopwatch};

/// As many as the poller fetches at once by default.
const BATCH: u32 = 500;

/// Where the messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// Nowhere: what storing and fetching alone can do.
    Nowhere,
    /// A queue in the same file, in the transaction that deletes: exactly once.
    LocalQueue,
}

pub(crate) fn drain(connection: &mut Connection, to: To) -> Result<Measured> {
    let stopwatch = Stopwatch::start();
    let mut drained = 0;
    loop {
        let rows = select_due(connection, Timestamp::now().as_microsecond(), BATCH)?;
        if rows.is_empty() {
            return Ok(stopwatch.stop(drained));
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        match to {
            To::Nowhere => drop(black_box(&rows)),
            To::LocalQueue => enqueue(&transaction, &rows)?,
        }
        delete(&transaction, &rows)?;
        transaction.commit()?;
        drained += rows.len();
    }
}
