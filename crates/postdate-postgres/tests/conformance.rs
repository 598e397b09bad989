//! The published suite, on schemas of their own in a real server.

use std::{error::Error, process::ExitCode, str::FromStr, sync::Arc};

use postdate_conformance::{Meddled, Meddling, Place, Suite};
use postdate_core::{Backend, Operation, StoreError, StoreErrorKind};
use postdate_postgres::{Options, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, postgres::PgConnectOptions};

fn main() -> ExitCode {
    Suite::new("postgres")
        .stores(|place| {
            let options = handle(place);
            async move { Ok(Arc::new(Postgres::with_options(options).await?) as Arc<dyn Backend>) }
        })
        .meddling(|place, meddling| {
            let (schema, changes) = (place.name().to_owned(), changes(place));
            async move { meddle(&schema, &changes, meddling).await }
        })
        .removing(|place| {
            let schema = place.name().to_owned();
            async move {
                let drop = format!(
                    "SET client_min_messages TO error; DROP SCHEMA IF EXISTS {schema} CASCADE;
                     DROP ROLE IF EXISTS {schema}"
                );
                let unavailable = |error: Box<dyn Error + Send + Sync>| {
                    let kind = StoreErrorKind::Unavailable;
                    StoreError::new(kind, Operation::Administer, "postgres", error.to_string())
                };
                execute(&drop).await.map(|_| ()).map_err(unavailable)
            }
        })
        .run()
}

/// What meddling has changed for handles that are opened afterwards.
#[derive(Clone, Default)]
struct Changes(Arc<std::sync::Mutex<(Option<&'static str>, bool)>>);

fn changes(place: &Place) -> Changes {
    place.shared(Changes::default)
}

fn admin() -> PgConnectOptions {
    PgConnectOptions::from_str(&test_postgres::url())
        .expect("the server's URL is one")
        .disable_statement_logging()
}

fn handle(place: &Place) -> Options {
    let mut connect = admin();
    let (zone, is_restricted) = *changes(place).0.lock().expect("nobody panics with it");
    if let Some(zone) = zone {
        connect = connect.options([("TimeZone", zone)]);
    }
    if is_restricted {
        connect = connect.username(place.name()).password("restricted");
    }
    Options::new(connect).schema(place.name())
}

async fn execute(statements: &str) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut connection = admin().connect().await?;
    let done = sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await?;
    connection.close().await?;
    Ok(done.rows_affected())
}

async fn meddle(
    schema: &str,
    changes: &Changes,
    meddling: Meddling,
) -> Result<Meddled, Box<dyn Error + Send + Sync>> {
    match meddling {
        Meddling::UnreadableRow { endpoint, id } => {
            let damage = format!(
                "UPDATE {schema}.message SET destination = '' WHERE id = '{}'
                 AND endpoint = (SELECT id FROM {schema}.endpoint WHERE name = '{}')",
                id.as_str(),
                endpoint.as_str()
            );
            let damaged = execute(&damage).await?;
            if damaged != 1 {
                return Err(format!("{damaged} rows were damaged").into());
            }
        }
        Meddling::NewerSchema => {
            execute(&format!("UPDATE {schema}.version SET version = version + 1000")).await?;
        }
        Meddling::CurrentSchema => {
            execute(&format!("UPDATE {schema}.version SET version = version - 1000")).await?;
        }
        Meddling::OlderSchema => return Ok(Meddled::Impossible("there is one version so far")),
        Meddling::NoRightToMakeTables => {
            let role = format!(
                "CREATE ROLE {schema} LOGIN PASSWORD 'restricted'; GRANT USAGE ON SCHEMA {schema} TO {schema};
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema};
                 REVOKE CREATE ON SCHEMA public FROM PUBLIC"
            );
            execute(&role).await?;
            changes.0.lock().expect("nobody panics with it").1 = true;
        }
        Meddling::SessionTimeZone(zone) => changes.0.lock().expect("nobody panics with it").0 = Some(zone),
        _ => return Ok(Meddled::Impossible("not known here")),
    }
    Ok(Meddled::Done)
}
