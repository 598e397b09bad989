//! A schema of a test's own.

use std::{str::FromStr, sync::Arc, time::Duration};

use postdate_core::{
    Address, Backend, DelayedMessage, DelayedMessageStore, Due, EndpointName, Message, MessageId,
    TransactionMode,
};
use postdate_postgres::{Options, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row, postgres::PgConnectOptions};

/// A schema, dropped with the next server.
pub(crate) struct Place {
    pub(crate) schema: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { schema: format!("t{}", uuid::Uuid::now_v7().simple()) }
    }

    pub(crate) fn connect_options() -> PgConnectOptions {
        PgConnectOptions::from_str(&test_postgres::url()).unwrap().disable_statement_logging()
    }

    pub(crate) fn options(&self) -> Options {
        Options::new(Self::connect_options()).schema(&self.schema)
    }

    /// A handle, as of another process.
    pub(crate) async fn open(&self) -> Postgres {
        Postgres::with_options(self.options()).await.unwrap()
    }

    /// A handle whose sessions can be told from those of others: they are called like the schema.
    pub(crate) async fn open_marked(&self) -> Postgres {
        let connect = Self::connect_options().application_name(&self.schema);
        Postgres::with_options(Options::new(connect).schema(&self.schema)).await.unwrap()
    }

    /// A store that was set up, in the mode that is used most.
    pub(crate) async fn store(&self) -> Arc<dyn DelayedMessageStore> {
        store(&self.open().await).await
    }

    pub(crate) async fn connection(&self) -> PgConnection {
        Self::connect_options().connect().await.unwrap()
    }

    /// Runs statements; `$schema` in them is this schema.
    pub(crate) async fn run(&self, statements: &str) {
        let mut connection = self.connection().await;
        sqlx::raw_sql(AssertSqlSafe(self.named(statements))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// The number that a statement answers with.
    pub(crate) async fn number(&self, statement: &str) -> i64 {
        let mut connection = self.connection().await;
        let row = sqlx::query(AssertSqlSafe(self.named(statement))).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        row.get(0)
    }

    pub(crate) fn named(&self, statements: &str) -> String {
        statements.replace("$schema", &self.schema)
    }
}

pub(crate) async fn store(backend: &Postgres) -> Arc<dyn DelayedMessageStore> {
    backend.set_up(&endpoint()).await.unwrap();
    backend.open(&endpoint(), TransactionMode::ReceiveOnly).await.unwrap()
}

pub(crate) fn endpoint() -> EndpointName {
    EndpointName::new("orders").unwrap()
}

pub(crate) fn message(id: &str, due: Due) -> DelayedMessage {
    Message::new("body").id(MessageId::new(id).unwrap()).to(Address::new("billing").unwrap(), due)
}

/// Waits for something that happens soon.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    while !holds().await {
        assert!(tokio::time::Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
