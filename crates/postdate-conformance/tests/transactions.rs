//! The reference backend obeys every contract also where its claims are transactions.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use jiff::Timestamp;
use postdate_conformance::{Meddled, Meddling, Place, Suite};
use postdate_core::{Backend, Clock, Memory, Queues, SystemClock};

fn main() -> ExitCode {
    Suite::new("transactions")
        .stores(|place| {
            let memory = memory(place);
            async move { Ok(Arc::new(memory) as Arc<dyn Backend>) }
        })
        .queues(|place| {
            let memory = memory(place);
            async move { Ok(Arc::new(memory.queues()) as Arc<dyn Queues>) }
        })
        .meddling(|place, meddling| {
            let clock = place.shared(Leaping::default);
            async move {
                Ok(match meddling {
                    Meddling::BrokenClaims => {
                        clock.0.fetch_add(2 * TERM.as_secs(), Relaxed);
                        Meddled::Done
                    }
                    _ => Meddled::Impossible("memory has neither rows nor a schema"),
                })
            }
        })
        .run()
}

/// Longer than any check takes.
const TERM: Duration = Duration::from_secs(120);

/// A clock that leaps ahead, which ends transactions.
#[derive(Clone, Debug, Default)]
struct Leaping(Arc<AtomicU64>);

impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        SystemClock.now() + Duration::from_secs(self.0.load(Relaxed))
    }
}

fn memory(place: &Place) -> Memory {
    let clock = place.shared(Leaping::default);
    place.shared(|| Memory::builder().clock(clock).lease(TERM).claims_in_transactions().build())
}
