//! `postgres://host/database`, and its options.

use std::sync::Arc;

use postdate_core::{Connected, Driver};

use crate::{Postgres, scratch::ScratchSchema};

/// Connects by URL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with the options that
/// [`Options`](crate::Options) has (`schema`, `prefix`, `connections`, `poll` and
/// `claim_limit` in seconds) and those of the driver
/// (`sslmode`, `sslrootcert`, `host`, ...).
pub const DRIVER: Driver = Driver {
    name: "postgres",
    schemes: &["postgres", "postgresql"],
    connect: |url| Box::pin(async move { Ok(connected(&Postgres::at(url).await?)) }),
    scratch: |url, name| Arc::new(ScratchSchema::new(url, name)),
};

/// The store with the queues beside it.
pub(crate) fn connected(backend: &Postgres) -> Connected {
    Connected { backend: Arc::new(backend.clone()), queues: Some(Arc::new(backend.queues())) }
}
