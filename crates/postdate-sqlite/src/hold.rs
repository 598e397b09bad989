//! What one claim holds.

use std::sync::Arc;

use postdate_core::{Operation, StoreError, wake::Topic};

use crate::{
    error::Result,
    file::{File, InFlight},
    writer::Work,
};

/// The hold of one claim on its messages: dropping it gives back what is left.
#[derive(Debug)]
pub(crate) struct Hold {
    file: Arc<File>,
    held: Held,
}

/// The same for work in the writer thread, which may outlive the claim.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    in_flight: Arc<InFlight>,
    topic: Topic,
    claim: u64,
}

impl Hold {
    /// A hold on nothing yet, for a new claim.
    pub(crate) fn new(file: Arc<File>, in_flight: Arc<InFlight>, endpoint: i64) -> Self {
        let claim = in_flight.new_claim();
        Self { file, held: Held { in_flight, topic: Topic::Endpoint(endpoint), claim } }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Gives messages back, and waits until other processes see it too.
    pub(crate) async fn give_back(&self, operation: Operation, seqs: &[i64]) -> Result<(), StoreError> {
        self.held.give_back(seqs);
        self.wake();
        self.file.write(operation, Work::Plain, |_| Ok(())).await
    }

    /// Gives everything back, and waits until other processes see it too.
    pub(crate) async fn give_all_back(&self, operation: Operation) -> Result<(), StoreError> {
        if !self.let_go() {
            return Ok(());
        }
        self.file.write(operation, Work::Plain, |_| Ok(())).await
    }

    /// Gives everything back in this process. `false` if there was nothing.
    fn let_go(&self) -> bool {
        let any = self.held.in_flight.give_all_back(self.held.claim);
        if any {
            self.wake();
        }
        any
    }

    /// What was fetched is overdue: earlier than whatever others wait for.
    fn wake(&self) {
        self.file.shared().wakes.ring(self.held.topic, i64::MIN, None);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.let_go() {
            // The writer thread tells other processes with its next transaction.
            self.file.write_unasked(Work::Plain, |_| Ok(()));
        }
    }
}

impl Held {
    /// Who waits for these messages.
    pub(crate) fn topic(&self) -> Topic {
        self.topic
    }

    /// Whether any claim holds a message.
    pub(crate) fn is_taken(&self, seq: i64) -> bool {
        self.in_flight.is_held(seq)
    }

    /// Holds a message that is not taken. In a write transaction.
    pub(crate) fn take(&self, seq: i64) {
        self.in_flight.hold(seq, self.claim);
    }

    /// Messages are gone for good.
    pub(crate) fn forget(&self, seqs: &[i64]) {
        self.in_flight.forget(seqs, self.claim);
    }

    /// Others may have messages, in this process at once.
    pub(crate) fn give_back(&self, seqs: &[i64]) {
        self.in_flight.give_back(seqs, self.claim);
    }
}
