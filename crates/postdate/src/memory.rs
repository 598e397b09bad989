//! The in-memory store by URL, for trials and tests: `memory:NAME`. Every connection is a store of its own.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use postdate_core::{Connected, Driver, Memory, ScratchPlace, StoreError};

pub(crate) const DRIVER: Driver = Driver {
    name: "memory",
    schemes: &["memory"],
    connect: |_| Box::pin(async { Ok(connected(&Memory::new())) }),
    // Whoever tries it waits for the ends of leases.
    scratch: |_, _| Arc::new(Scratch(Memory::builder().lease(Duration::from_secs(3)).build())),
};

/// Its content is gone with the last handle: there is nothing to remove.
#[derive(Debug)]
struct Scratch(Memory);

#[async_trait]
impl ScratchPlace for Scratch {
    async fn connect(&self) -> Result<Connected, StoreError> {
        Ok(connected(&self.0))
    }

    async fn remove(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn connected(memory: &Memory) -> Connected {
    Connected { backend: Arc::new(memory.clone()), queues: Some(Arc::new(memory.queues())) }
}
