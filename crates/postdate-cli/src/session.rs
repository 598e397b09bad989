//! The store that a verb works on, and its queues.

use std::{path::PathBuf, sync::Arc};

use postdate::{
    Address, Backend, Connected, DelayedMessageStore, EndpointName, Queues, StoreErrorKind, StoreUrl,
};

use crate::{
    cli::Options,
    exit::{Exit, Failure},
};

/// A connected store and whose messages in it are meant.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) url: StoreUrl,
    pub(crate) endpoint: EndpointName,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) transport: Transport,
}

/// Queues, and where they are.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) url: StoreUrl,
    pub(crate) backend: Arc<dyn Backend>,
    /// None where a store has none.
    pub(crate) queues: Option<Arc<dyn Queues>>,
}

impl Session {
    /// Connects.
    pub(crate) async fn connect(options: &Options) -> Result<Self, Failure> {
        let url = StoreUrl::parse(&options.store)?;
        let Connected { backend, queues } = postdate::connect(url.secret()).await?;
        let transport = match elsewhere(options)? {
            Some(transport) => Transport::at(transport).await?,
            None => Transport { url: url.clone(), backend: backend.clone(), queues },
        };
        Ok(Self { url, endpoint: options.endpoint.clone(), backend, transport })
    }

    /// Connects to what is there: looking must not make a new file out of a mistyped name.
    pub(crate) async fn existing(options: &Options) -> Result<Self, Failure> {
        there_is(&StoreUrl::parse(&options.store)?)?;
        if let Some(transport) = elsewhere(options)? {
            there_is(&transport)?;
        }
        Self::connect(options).await
    }

    /// Connects and sets up what is missing.
    pub(crate) async fn prepare(options: &Options) -> Result<Self, Failure> {
        let session = Self::connect(options).await?;
        session.backend.set_up(&session.endpoint).await?;
        Ok(session)
    }

    /// The endpoint's delayed messages.
    pub(crate) async fn store(&self) -> Result<Arc<dyn DelayedMessageStore>, Failure> {
        let Some(mode) = self.backend.capabilities().modes.first().copied() else {
            return Err(Failure::new(Exit::Unusable, format!("{}: supports no mode at all", self.url)));
        };
        Ok(self.backend.open(&self.endpoint, mode).await?)
    }
}

impl Transport {
    /// The queues alone, as they are there.
    pub(crate) async fn existing(options: &Options) -> Result<Self, Failure> {
        match elsewhere(options)? {
            Some(url) => {
                there_is(&url)?;
                Self::at(url).await
            }
            None => Ok(Session::existing(options).await?.transport),
        }
    }

    /// The queues alone, ready to be used.
    pub(crate) async fn prepare(options: &Options) -> Result<Self, Failure> {
        match elsewhere(options)? {
            Some(url) => Self::at(url).await,
            None => Ok(Session::prepare(options).await?.transport),
        }
    }

    async fn at(url: StoreUrl) -> Result<Self, Failure> {
        let Connected { backend, queues } = postdate::connect(url.secret()).await?;
        Ok(Self { url, backend, queues })
    }

    pub(crate) fn queues(&self) -> Result<&Arc<dyn Queues>, Failure> {
        self.queues.as_ref().ok_or_else(|| {
            let message = format!("{}: has no queues; name some that are elsewhere by --transport", self.url);
            Failure::new(Exit::Failure, message)
        })
    }

    /// Whether there is such a queue; `None` where messages go elsewhere.
    pub(crate) async fn has_queue(&self, queue: &Address) -> Result<Option<bool>, Failure> {
        let Some(queues) = &self.queues else { return Ok(None) };
        match queues.receiver(queue).await {
            Ok(_) => Ok(Some(true)),
            Err(error) if error.kind() == StoreErrorKind::NoSuchQueue => Ok(Some(false)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Where the queues are, if that is not beside the store.
fn elsewhere(options: &Options) -> Result<Option<StoreUrl>, Failure> {
    let named = options.transport.as_deref().filter(|transport| *transport != options.store);
    Ok(named.map(StoreUrl::parse).transpose()?)
}

fn there_is(url: &StoreUrl) -> Result<(), Failure> {
    match file(url).filter(|file| !file.exists()) {
        None => Ok(()),
        Some(file) => {
            let message = format!(
                "there is no {}; `postdate run`, `postdate send` and `postdate setup` make it",
                file.display()
            );
            Err(Failure::new(Exit::Unusable, message))
        }
    }
}

/// The file of a store that is one.
pub(crate) fn file(url: &StoreUrl) -> Option<PathBuf> {
    let place = url.place().strip_prefix("//").unwrap_or(url.place());
    (url.scheme() == "sqlite").then(|| PathBuf::from(place))
}
