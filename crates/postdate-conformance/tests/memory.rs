//! The reference backend obeys every contract.

use std::{process::ExitCode, sync::Arc, time::Duration};

use postdate_conformance::{Meddled, Place, Suite};
use postdate_core::{Backend, Memory, Queues};

fn main() -> ExitCode {
    Suite::new("memory")
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

fn memory(place: &Place) -> Memory {
    place.shared(|| Memory::builder().lease(Duration::from_secs(3)).build())
}
