//! The in-memory store by URL, for trials and tests: `memory:NAME`. Every connection is a store of its own.

use std::sync::Arc;

use postdate_core::{Connected, Driver, Memory};

pub(crate) const DRIVER: Driver =
    Driver { name: "memory", schemes: &["memory"], connect: |_| Box::pin(async { Ok(connected()) }) };

fn connected() -> Connected {
    let memory = Memory::new();
    let queues = memory.queues();
    Connected { backend: Arc::new(memory), queues: Some(Arc::new(queues)) }
}
