//! A schema of one's own beside the store's, for trials.

use async_trait::async_trait;
use postdate_core::{Connected, Operation, ScratchPlace, StoreError, StoreUrl};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{Options, Postgres, driver::connected, error::Result, names::quote, place::within};

/// The schema, made by setting up and dropped with everything in it.
#[derive(Debug)]
pub(crate) struct ScratchSchema {
    url: StoreUrl,
    schema: String,
}

impl ScratchSchema {
    pub(crate) fn new(url: &StoreUrl, name: &str) -> Self {
        Self { url: url.clone(), schema: format!("postdate_scratch_{name}") }
    }

    fn options(&self) -> Result<Options, StoreError> {
        let options = Options::from_url(&self.url).map(|options| options.schema(&self.schema));
        options.map_err(|fault| fault.into_error(Operation::Connect, &self.url.to_string()))
    }
}

#[async_trait]
impl ScratchPlace for ScratchSchema {
    async fn connect(&self) -> Result<Connected, StoreError> {
        Ok(connected(&Postgres::with_options(self.options()?).await?))
    }

    async fn remove(&self) -> Result<(), StoreError> {
        // A store that nobody could connect to has no scratch place either.
        let Ok(options) = self.options() else { return Ok(()) };
        let drop = async {
            let mut connection = PgConnection::connect_with(&options.connect).await?;
            // Handles may be open still, and hold what is to be dropped.
            let drop = format!(
                "SET lock_timeout TO '10s'; SET client_min_messages TO error; DROP SCHEMA IF EXISTS {} CASCADE",
                quote(&self.schema)
            );
            sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await?;
            Ok(connection.close().await?)
        };
        within(drop).await.map_err(|fault| fault.into_error(Operation::Administer, &options.shown))
    }
}
