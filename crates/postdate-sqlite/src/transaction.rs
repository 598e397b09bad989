//! What a dispatcher joins in [`TransactionScope`](postdate_core::TransactionMode::TransactionScope) mode.

use postdate_core::OutgoingMessage;

use crate::{dispatcher::insert, error::Result, file::FileIdentity, time::floor_micros, writer::Tx};

/// The transaction of a claim: what is sent in it is written into the queues in the very transaction that removes
/// the claim's messages.
///
/// Until then it is kept in memory, so that a batch costs one commit and no lock is held while others dispatch.
#[derive(Debug)]
pub struct SqliteTransaction {
    file: FileIdentity,
    sends: Vec<(i64, OutgoingMessage)>,
}

impl SqliteTransaction {
    pub(crate) fn new(file: FileIdentity) -> Self {
        Self { file, sends: Vec::new() }
    }

    /// Whether it is a transaction of this file.
    pub(crate) fn is_of(&self, file: &FileIdentity) -> bool {
        self.file == *file
    }

    /// Sends a message to the queue of a number, when all is committed.
    pub(crate) fn stage(&mut self, queue: i64, message: OutgoingMessage) {
        self.sends.push((queue, message));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    pub(crate) fn send(&self, tx: &mut Tx<'_>) -> Result<()> {
        let now = floor_micros(tx.shared.clock.now());
        insert(tx, self.sends.iter().map(|(queue, message)| (*queue, message)), now)
    }
}
