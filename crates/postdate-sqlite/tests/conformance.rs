//! The published suite, on files of this crate.

use std::{process::ExitCode, sync::Arc};

use postdate_conformance::Suite;
use postdate_core::{Backend, Queues};
use postdate_sqlite::Sqlite;

fn main() -> ExitCode {
    Suite::new("sqlite")
        .stores(|place| {
            let path = place.dir().join("postdate.db");
            async move { Ok(Arc::new(Sqlite::open(path).await?) as Arc<dyn Backend>) }
        })
        .queues(|place| {
            let path = place.dir().join("postdate.db");
            async move { Ok(Arc::new(Sqlite::open(path).await?.queues()) as Arc<dyn Queues>) }
        })
        .run()
}
