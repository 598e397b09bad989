//! The store that a verb works on.

use std::{path::PathBuf, sync::Arc};

use postdate::{Address, Connected, DelayedMessageStore, EndpointName, Queues, StoreErrorKind, StoreUrl};

use crate::{
    cli::Options,
    exit::{Exit, Failure},
};

/// A connected store and whose messages in it are meant.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) url: StoreUrl,
    pub(crate) endpoint: EndpointName,
    pub(crate) connected: Connected,
}

impl Session {
    /// Connects.
    pub(crate) async fn connect(options: &Options) -> Result<Self, Failure> {
        let url = StoreUrl::parse(&options.store)?;
        let connected = postdate::connect(url.secret()).await?;
        Ok(Self { url, endpoint: options.endpoint.clone(), connected })
    }

    /// Connects to what is there: looking must not make a new file out of a mistyped name.
    pub(crate) async fn existing(options: &Options) -> Result<Self, Failure> {
        if let Some(file) = StoreUrl::parse(&options.store).ok().as_ref().and_then(file)
            && !file.exists()
        {
            let message = format!(
                "there is no {}; `postdate run`, `postdate send` and `postdate setup` make it",
                file.display()
            );
            return Err(Failure::new(Exit::Unusable, message));
        }
        Self::connect(options).await
    }

    /// Connects and sets up what is missing.
    pub(crate) async fn prepare(options: &Options) -> Result<Self, Failure> {
        let session = Self::connect(options).await?;
        session.connected.backend.set_up(&session.endpoint).await?;
        Ok(session)
    }

    /// The endpoint's delayed messages.
    pub(crate) async fn store(&self) -> Result<Arc<dyn DelayedMessageStore>, Failure> {
        let backend = &self.connected.backend;
        let Some(mode) = backend.capabilities().modes.first().copied() else {
            return Err(Failure::new(Exit::Unusable, format!("{}: supports no mode at all", self.url)));
        };
        Ok(backend.open(&self.endpoint, mode).await?)
    }

    /// The queues beside the store.
    pub(crate) fn queues(&self) -> Result<&Arc<dyn Queues>, Failure> {
        self.connected.queues.as_ref().ok_or_else(|| {
            let message = format!("{}: has no queues; use a store that has some, such as sqlite:", self.url);
            Failure::new(Exit::Failure, message)
        })
    }

    /// Whether there is such a queue beside the store; `None` where messages go elsewhere.
    pub(crate) async fn has_queue(&self, queue: &Address) -> Result<Option<bool>, Failure> {
        let Some(queues) = &self.connected.queues else { return Ok(None) };
        match queues.receiver(queue).await {
            Ok(_) => Ok(Some(true)),
            Err(error) if error.kind() == StoreErrorKind::NoSuchQueue => Ok(Some(false)),
            Err(error) => Err(error.into()),
        }
    }
}

/// The file of a store that is one.
pub(crate) fn file(url: &StoreUrl) -> Option<PathBuf> {
    let place = url.place().strip_prefix("//").unwrap_or(url.place());
    (url.scheme() == "sqlite").then(|| PathBuf::from(place))
}
