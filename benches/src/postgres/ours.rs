//! postdate on PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use postdate_core::{Backend, Memory};
use postdate_postgres::Postgres;

use super::server::Database;
use crate::{contest::Ground, scenarios::Ours};

/// postdate in an empty database, as so many dispatchers use it that know nothing of each other.
pub(super) fn ours_in(ground: &Ground, database: &Database, dispatchers: usize) -> Result<Ours> {
    ground.runtime.block_on(async {
        let mut handles: Vec<Arc<dyn Backend>> = Vec::with_capacity(dispatchers);
        for _ in 0..dispatchers {
            handles.push(Arc::new(Postgres::connect(database.url()).await?));
        }
        let queues = Arc::new(Memory::builder().build().queues());
        Ours::set_up(handles, queues).await
    })
}
