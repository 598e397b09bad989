//! How a dispatcher joins the transaction of a claim.

use std::{any::Any, fmt};

/// A live transaction of a store, lent to a dispatcher that knows its type.
pub struct Enlistment<'a> {
    transaction: &'a mut (dyn Any + Send),
}

impl<'a> Enlistment<'a> {
    /// Lends `transaction`.
    pub fn new(transaction: &'a mut (dyn Any + Send)) -> Self {
        Self { transaction }
    }

    /// The transaction, if it is a `T`.
    pub fn transaction<T: Any>(&mut self) -> Option<&mut T> {
        self.transaction.downcast_mut()
    }

    /// Lends it on.
    pub fn reborrow(&mut self) -> Enlistment<'_> {
        Enlistment { transaction: &mut *self.transaction }
    }
}

impl fmt::Debug for Enlistment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Enlistment")
    }
}
