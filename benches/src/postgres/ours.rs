//! postdate on PostgreSQL.

use std::sync::Arc;

use anyhow::Result;
use postdate_core::Backend;
use postdate_postgres::Postgres;

use super::server::Database;
use crate::{contest::Ground, scenarios::Ours};

/// postdate in an empty database, as so many dispatchers use it that know nothing of each other.
pub(super) fn ours_in(ground: &Ground, database: &Database, dispatchers: usize) -> Result<Ours> {
    ground.runtime.block_on(async {
        let first = Postgres::connect(database.url()).await?;
        let queues = Arc::new(first.queues());
        let mut handles: Vec<Arc<dyn Backend>> = vec![Arc::new(first)];
        while handles.len() < dispatchers {
            handles.push(Arc::new(Postgres::connect(database.url()).await?));
        }
        Ours::set_up(handles, queues).await
    })
}
