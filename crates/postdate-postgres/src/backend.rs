//! A schema as a backend.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use postdate_core::{
    Backend, Capabilities, ClaimKind, DelayedMessageStore, EndpointName, InvalidStoreUrl, Operation,
    StoreError, StoreErrorKind, StoreUrl, TransactionMode,
};

use crate::{MAX_MESSAGE_BYTES, Options, place::Place, schema, store::PostgresStore, warnings};

/// Delayed messages in a schema of a PostgreSQL database.
///
/// Clones share the connections.
#[derive(Clone, Debug)]
pub struct Postgres {
    pub(crate) place: Arc<Place>,
}

impl Postgres {
    /// Connects to `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, as [`DRIVER`](crate::DRIVER) does.
    ///
    /// # Errors
    /// When the text is no such URL, or as [`with_options`](Self::with_options).
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let url = StoreUrl::parse(url).map_err(|error: InvalidStoreUrl| {
            StoreError::new(StoreErrorKind::Configuration, Operation::Connect, "postgres", error.to_string())
        })?;
        Self::at(&url).await
    }

    pub(crate) async fn at(url: &StoreUrl) -> Result<Self, StoreError> {
        let options = Options::from_url(url);
        Self::with_options(options.map_err(|fault| fault.into_error(Operation::Connect, &url.to_string()))?)
            .await
    }

    /// Connects. Changes nothing in the database.
    ///
    /// # Errors
    /// [`Unavailable`](StoreErrorKind::Unavailable) when the server cannot be reached,
    /// [`Configuration`](StoreErrorKind::Configuration) when it refuses the user or is no server that can hold a
    /// store: a read replica, one before version 13, a database in another encoding than UTF-8.
    pub async fn with_options(options: Options) -> Result<Self, StoreError> {
        Ok(Self { place: Place::open(options).await? })
    }
}

#[async_trait]
impl Backend for Postgres {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(&TransactionMode::ALL, ClaimKind::Transaction)
            .max_message_bytes(MAX_MESSAGE_BYTES)
            .resolution(Duration::from_micros(1))
    }

    async fn set_up(&self, endpoint: &EndpointName) -> Result<(), StoreError> {
        let set_up = async {
            let mut connection = self.place.connections.lend().await?;
            schema::set_up(&self.place, &mut connection, Some(endpoint)).await?;
            connection.give_back();
            Ok(())
        };
        self.place.call(Operation::SetUp, set_up).await
    }

    fn set_up_script(&self, endpoint: &EndpointName) -> Option<String> {
        Some(schema::script(&self.place.names, self.place.engine, endpoint))
    }

    async fn warnings(&self) -> Result<Vec<String>, StoreError> {
        let look = async {
            let mut connection = self.place.connections.lend().await?;
            let warnings = warnings::of(&mut connection).await?;
            connection.give_back();
            Ok(warnings)
        };
        self.place.call(Operation::Query, look).await
    }

    async fn open(
        &self,
        endpoint: &EndpointName,
        mode: TransactionMode,
    ) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
        let find = async {
            let mut connection = self.place.connections.lend().await?;
            let number = schema::endpoint(&self.place, &mut connection, endpoint).await?;
            connection.give_back();
            Ok(number)
        };
        let number = self.place.call(Operation::Open, find).await?;
        Ok(Arc::new(PostgresStore::new(Arc::clone(&self.place), number, mode)))
    }
}
