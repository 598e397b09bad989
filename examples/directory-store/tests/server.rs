//! How the suite is run on a store with a server. The server here is a pretended one, for the guide to show a `main`
//! that compiles and runs: with `ACME_URL=any` it judges the reference store.

use std::{
    collections::BTreeMap,
    env,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use postdate_conformance::{Suite, absent};
use postdate_core::{Backend, Memory, StoreError};

fn main() -> ExitCode {
    let Ok(url) = env::var("ACME_URL") else {
        return absent("acme", "ACME_URL is not set");
    };
    let same_url = url.clone();
    Suite::new("acme")
        .stores(move |place| {
            let (url, schema) = (url.clone(), place.name().to_owned());
            async move { Ok(Arc::new(Acme::connect(&url, &schema).await?) as Arc<dyn Backend>) }
        })
        .removing(move |place| {
            let (url, schema) = (same_url.clone(), place.name().to_owned());
            async move { Acme::remove(&url, &schema).await }
        })
        .run()
}

/// What is on the server, by schema.
static SCHEMAS: Mutex<BTreeMap<String, Memory>> = Mutex::new(BTreeMap::new());

struct Acme;

impl Acme {
    async fn connect(_url: &str, schema: &str) -> Result<Memory, StoreError> {
        let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(schemas.entry(schema.to_owned()).or_default().clone())
    }

    async fn remove(_url: &str, schema: &str) -> Result<(), StoreError> {
        SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner).remove(schema);
        Ok(())
    }
}
