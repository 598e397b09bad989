//! Judging a place that is in use, without touching it.

use std::sync::Arc;

use postdate_core::{Driver, Operation, ScratchPlace, StoreError, StoreErrorKind, StoreUrl};

use crate::{Meddled, Place, Suite};

impl Suite {
    /// A suite for the backend behind a URL: its stores, and its queues where it has some. Each check has a scratch
    /// place of its own [beside](ScratchPlace) the one that the URL names, which is removed when it is done.
    ///
    /// # Errors
    /// When such a place cannot be made, used, or removed: no check could be judged then.
    pub async fn beside(driver: Driver, url: &StoreUrl) -> Result<Self, StoreError> {
        let place = Place::new().map_err(|error| {
            let detail = format!("cannot make a folder for temporary files: {error}; look at TMPDIR");
            StoreError::new(StoreErrorKind::Configuration, Operation::Connect, url.to_string(), detail)
        })?;
        let trial = (driver.scratch)(url, place.name());
        let connected = trial.connect().await;
        let has_queues = connected.map(|connected| connected.queues.is_some());
        let removed = trial.remove().await;
        // What could not be connected to often cannot be removed either, for the same reason.
        let (url, wants_queues) = (url.clone(), has_queues?);
        removed?;
        let scratch = move |place: &Place| place.shared(|| (driver.scratch)(&url, place.name()));
        let (stores, queues) = (scratch.clone(), scratch.clone());
        let suite = Self::new(driver.name)
            .stores(move |place| {
                let scratch = stores(place);
                async move { Ok(scratch.connect().await?.backend) }
            })
            .removing(move |place| {
                let scratch = scratch(place);
                async move { scratch.remove().await }
            })
            .meddling(|_, _| async {
                Ok(Meddled::Impossible("only the store's own tests can bring that about"))
            });
        if !wants_queues {
            return Ok(suite);
        }
        Ok(suite.queues(move |place| {
            let scratch: Arc<dyn ScratchPlace> = queues(place);
            async move {
                scratch.connect().await?.queues.ok_or_else(|| {
                    let detail = "the place had queues a moment ago, and has none now";
                    StoreError::new(StoreErrorKind::Other, Operation::Connect, driver.name, detail)
                })
            }
        }))
    }
}
