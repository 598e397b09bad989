//! What a claim and its dispatcher do together: all of it when it commits, or nothing.

use postdate_core::{Enlistment, OutgoingMessage};
use postdate_history::{Way, What};

/// Effects that wait for the commit of a claim.
#[derive(Debug, Default)]
pub(crate) struct SimTransaction {
    sends: Vec<What>,
    changes: Vec<What>,
}

impl SimTransaction {
    /// The transaction that a dispatcher was lent.
    pub(crate) fn of<'a>(enlistment: &'a mut Enlistment<'_>) -> &'a mut Self {
        enlistment.transaction().expect("there are no other transactions in this world")
    }

    pub(crate) fn send(&mut self, message: &OutgoingMessage, way: Way) {
        self.sends.push(match way {
            Way::Destination => What::delivered(message),
            Way::ErrorQueue => What::moved(message),
        });
    }

    /// Something that the claim does itself.
    pub(crate) fn change(&mut self, what: What) {
        self.changes.push(what);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.changes.is_empty()
    }

    /// Everything, what was sent first.
    pub(crate) fn into_effects(self) -> impl Iterator<Item = What> {
        self.sends.into_iter().chain(self.changes)
    }
}
