//! postdate on PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use postdate_core::{Backend, Memory};

use super::server::Database;
use crate::{contest::Ground, scenarios::Ours};

/// postdate in an empty database, as so many dispatchers use it that know nothing of each other.
pub(super) fn ours_in(ground: &Ground, _database: &Database, dispatchers: usize) -> Result<Ours> {
    ground.runtime.block_on(async {
        let memory = Memory::builder().build();
        let queues = Arc::new(memory.queues());
        let handles = (0..dispatchers).map(|_| Arc::new(memory.clone()) as Arc<dyn Backend>).collect();
        Ours::set_up(handles, queues).await
    })
}
