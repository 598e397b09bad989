//! The reference backend obeys every contract also where its claims are transactions.

use std::{process::ExitCode, sync::Arc, time::Duration};

use postdate_conformance::{Meddled, Place, Suite};
use postdate_core::{Backend, Memory, Queues};

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
        .meddling(|_, _| async { Ok(Meddled::Impossible("memory has neither rows nor a schema")) })
        .run()
}

/// No check waits for a transaction to be ended.
fn memory(place: &Place) -> Memory {
    place.shared(|| Memory::builder().lease(Duration::from_secs(120)).claims_in_transactions().build())
}
