//! What is in flight, endpoint by endpoint.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::in_flight::InFlight;
use crate::error::Result;

/// Each endpoint of a file has a dispatcher of its own, in whatever process.
#[derive(Debug)]
pub(crate) struct Dispatching {
    path: PathBuf,
    endpoints: Mutex<HashMap<i64, Arc<InFlight>>>,
}

impl Dispatching {
    /// For the database at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), endpoints: Mutex::default() }
    }

    /// What is in flight for an endpoint.
    pub(crate) fn of(&self, endpoint: i64) -> Arc<InFlight> {
        let mut endpoints = self.endpoints();
        let in_flight =
            endpoints.entry(endpoint).or_insert_with(|| Arc::new(InFlight::new(&self.path, endpoint)));
        Arc::clone(in_flight)
    }

    pub(crate) fn is_unpublished(&self) -> bool {
        self.endpoints().values().any(|in_flight| in_flight.is_unpublished())
    }

    /// Whether we hold something of which others cannot know.
    pub(crate) fn hides_claims(&self) -> bool {
        self.endpoints().values().any(|in_flight| in_flight.hides_claims())
    }

    /// Writes down for others what we hold. In a write transaction.
    pub(crate) fn publish(&self) -> Result<()> {
        self.endpoints().values().try_for_each(|in_flight| in_flight.publish())
    }

    /// Lets others dispatch.
    pub(crate) fn free_locks(&self) {
        self.endpoints().values().for_each(|in_flight| in_flight.free_lock());
    }

    fn endpoints(&self) -> MutexGuard<'_, HashMap<i64, Arc<InFlight>>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
