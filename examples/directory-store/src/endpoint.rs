//! An endpoint that is open: its messages behind one lock, shared by all its handles and claims.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postdate_core::{Operation, StoreError, StoreErrorKind};

use crate::{
    backend::Right,
    error::{Fault, Result},
    messages::Messages,
};

#[derive(Debug)]
pub(crate) struct Endpoint {
    right: Arc<Right>,
    messages: Mutex<Messages>,
}

impl Endpoint {
    pub(crate) fn new(right: Arc<Right>, messages: Messages) -> Self {
        Self { right, messages: Mutex::new(messages) }
    }

    /// Runs a step alone. What is done in one step is one change: nobody sees a half of it.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        operation: Operation,
        step: impl FnOnce(&mut Messages) -> Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let this = Arc::clone(self);
        run(&self.right.store, operation, move || step(&mut this.lock())).await
    }

    /// The messages, for what takes no time. Waits for at most one step.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a step on a thread that may block. Once it has begun it runs to its end, also when nobody waits for it any
/// more: that makes every future that ends in it safe to drop.
pub(crate) async fn run<T: Send + 'static>(
    store: &str,
    operation: Operation,
    step: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(step).await;
    let done = done.unwrap_or_else(|error| Err(Fault::new(StoreErrorKind::Other, error.to_string())));
    done.map_err(|fault| fault.into_error(operation, store))
}
