//! What the suite asked to be done behind the back of the reference backend, which knows neither rows nor schemas:
//! the faulty backend plays them.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::Timestamp;
use postdate_conformance::{Meddled, Meddling};
use postdate_core::{Clock, EndpointName, MessageId, SystemClock};

/// What was done to a place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meddlings {
    state: Arc<Mutex<State>>,
    /// So many seconds the clock was set ahead, which ends transactions.
    ahead: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) unreadable: BTreeSet<(EndpointName, MessageId)>,
    pub(crate) schema: Schema,
    pub(crate) no_right: bool,
    pub(crate) zoned: bool,
    pub(crate) set_up: BTreeSet<EndpointName>,
    /// How many stores were opened.
    pub(crate) opened: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Schema {
    #[default]
    Current,
    Newer,
    Older,
}

impl Clock for Meddlings {
    fn now(&self) -> Timestamp {
        SystemClock.now() + Duration::from_secs(self.ahead.load(Relaxed))
    }
}

impl Meddlings {
    pub(crate) fn meddle(&self, meddling: Meddling) -> Meddled {
        let mut state = self.lock();
        match meddling {
            Meddling::UnreadableRow { endpoint, id } => {
                state.unreadable.insert((endpoint, id));
            }
            Meddling::NewerSchema => state.schema = Schema::Newer,
            Meddling::CurrentSchema => state.schema = Schema::Current,
            Meddling::OlderSchema => state.schema = Schema::Older,
            Meddling::NoRightToMakeTables => state.no_right = true,
            Meddling::SessionTimeZone(_) => state.zoned = true,
            Meddling::BrokenClaims => {
                self.ahead.fetch_add(1_000, Relaxed);
            }
            _ => return Meddled::Impossible("not played"),
        }
        Meddled::Done
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_unreadable(&self, endpoint: &EndpointName, id: &MessageId) -> bool {
        self.lock().unreadable.contains(&(endpoint.clone(), id.clone()))
    }
}
