//! What is in flight, endpoint by endpoint.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::in_flight::InFlight;
use crate::error::Result;

/// Each endpoint of a file has a dispatcher of its own, in whatever process.
///
/// What is in flight lives as long as a store, a claim or a piece of work uses it. With the last of them goes the
/// right to dispatch, and not while a transaction depends on it.
#[derive(Debug)]
pub(crate) struct Dispatching {
    path: PathBuf,
    endpoints: Mutex<HashMap<i64, Weak<InFlight>>>,
}

impl Dispatching {
    /// For the database at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), endpoints: Mutex::default() }
    }

    /// What is in flight for an endpoint.
    pub(crate) fn of(&self, endpoint: i64) -> Arc<InFlight> {
        let mut endpoints = self.endpoints();
        if let Some(in_flight) = endpoints.get(&endpoint).and_then(Weak::upgrade) {
            return in_flight;
        }
        let in_flight = Arc::new(InFlight::new(&self.path, endpoint));
        endpoints.insert(endpoint, Arc::downgrade(&in_flight));
        in_flight
    }

    pub(crate) fn is_unpublished(&self) -> bool {
        self.in_use().iter().any(|in_flight| in_flight.is_unpublished())
    }

    /// Whether we hold something of which others cannot know.
    pub(crate) fn hides_claims(&self) -> bool {
        self.in_use().iter().any(|in_flight| in_flight.hides_claims())
    }

    /// Writes down for others what we hold. In a write transaction.
    pub(crate) fn publish(&self) -> Result<()> {
        let mut outcome = Ok(());
        for in_flight in self.in_use() {
            // One that cannot be written keeps no other from being written.
            outcome = outcome.and(in_flight.publish());
        }
        outcome
    }

    /// Lets others dispatch.
    pub(crate) fn free_locks(&self) {
        self.in_use().iter().for_each(|in_flight| in_flight.free_lock());
    }

    fn in_use(&self) -> Vec<Arc<InFlight>> {
        self.endpoints().values().filter_map(Weak::upgrade).collect()
    }

    fn endpoints(&self) -> MutexGuard<'_, HashMap<i64, Weak<InFlight>>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
