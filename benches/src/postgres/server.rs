//! The server, and databases on it that nobody else uses.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, query_scalar};
use tokio::time::{Instant, sleep};
use url::Url;

use super::gauge::Gauge;

const OURS: &str = "SELECT datname FROM pg_database WHERE starts_with(datname, $1)";
const NOW: &str = "SELECT clock_timestamp()::text";
/// When each other client's connection to this database was last asked something; the server itself vacuums when it likes.
const ASKED: &str = "SELECT pid || ' ' || query_start FROM pg_stat_activity WHERE datname = current_database() \
                     AND backend_type = 'client backend' AND pid <> pg_backend_pid() \
                     AND query_start > $1::timestamptz";

/// What was on its way when the last message came has ended by then.
const CALM: Duration = Duration::from_millis(500);
/// Shorter than what anybody polls at.
const GLANCE: Duration = Duration::from_millis(5);

/// A server whose user may make databases and checkpoints. No connection outlives a scenario, as its runtime does not either.
#[derive(Debug)]
pub(crate) struct Server {
    url: Url,
    /// What the names of our databases begin with.
    prefix: String,
    made: AtomicUsize,
}

/// A database for one contestant.
#[derive(Debug)]
pub(crate) struct Database {
    name: String,
    url: Url,
    server: Url,
}

impl Server {
    pub(crate) fn new(url: &str) -> Result<Self> {
        let url = Url::parse(url).context("the URL of the PostgreSQL server makes no sense")?;
        Ok(Self { url, prefix: format!("postdate_bench_{}_", std::process::id()), made: AtomicUsize::new(0) })
    }

    pub(crate) async fn empty_database(&self) -> Result<Database> {
        let name = format!("{}{}", self.prefix, self.made.fetch_add(1, Relaxed));
        execute(&mut connect(&self.url).await?, &format!("CREATE DATABASE {name}")).await?;
        let (mut url, server) = (self.url.clone(), self.url.clone());
        url.set_path(&name);
        Ok(Database { name, url, server })
    }

    /// Removes the databases of rounds that failed.
    pub(crate) async fn sweep(&self) -> Result<()> {
        let mut connection = connect(&self.url).await?;
        let names = query_scalar::<_, String>(OURS).bind(&self.prefix).fetch_all(&mut connection).await?;
        for name in names {
            execute(&mut connection, &format!("DROP DATABASE {name} WITH (FORCE)")).await?;
        }
        Ok(())
    }
}

impl Database {
    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        connect(&self.url).await
    }

    /// From now on a statement that is prepared has one plan for all values, as it has in sessions that live long.
    pub(crate) async fn plan_once(&self) -> Result<()> {
        let set = format!("ALTER DATABASE {} SET plan_cache_mode = force_generic_plan", self.name);
        execute(&mut self.connect().await?, &set).await
    }

    /// Brings statistics, free space and the disk into the state in which every round begins.
    pub(crate) async fn settle(&self) -> Result<()> {
        let mut connection = self.connect().await?;
        execute(&mut connection, "VACUUM ANALYZE").await?;
        execute(&mut connection, "CHECKPOINT").await
    }

    /// A transaction that sees what is there now, for as long as the connection lives.
    pub(crate) async fn hold_snapshot(&self) -> Result<PgConnection> {
        let mut connection = self.connect().await?;
        execute(&mut connection, "BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        execute(&mut connection, "SELECT count(*) FROM pg_class").await?;
        Ok(connection)
    }

    /// Begins to look at what the server does.
    pub(crate) async fn gauge(&self) -> Result<Gauge> {
        Gauge::start(self.connect().await?).await
    }

    /// How many queries a second others ask in the time that comes now. One sees when a connection was asked last, so that of several within a few
    /// milliseconds one counts.
    pub(crate) async fn idle_queries(&self, time: Duration) -> Result<f64> {
        sleep(CALM).await;
        let mut connection = self.connect().await?;
        let began: String = query_scalar(NOW).fetch_one(&mut connection).await?;
        let (until, mut asked) = (Instant::now() + time, BTreeSet::new());
        while Instant::now() < until {
            sleep(GLANCE).await;
            asked.extend(query_scalar::<_, String>(ASKED).bind(&began).fetch_all(&mut connection).await?);
        }
        Ok(asked.len() as f64 / time.as_secs_f64())
    }

    pub(crate) async fn remove(self) -> Result<()> {
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        execute(&mut connect(&self.server).await?, &drop).await
    }
}

async fn connect(url: &Url) -> Result<PgConnection> {
    PgConnection::connect(url.as_str()).await.context("the PostgreSQL server does not answer")
}

/// The names of databases are made here, of letters and digits.
async fn execute(connection: &mut PgConnection, sql: &str) -> Result<()> {
    connection.execute(AssertSqlSafe(sql)).await.with_context(|| format!("cannot {sql}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn queries_are_seen_while_nobody_should_ask() -> Result<()> {
        let started = crate::postgres::tests::server();
        let server = Server::new(&started.url())?;
        let database = server.empty_database().await?;
        let mut idle = database.connect().await?;
        execute(&mut idle, "SELECT 1").await?;
        let time = Duration::from_secs(1);
        assert_eq!(database.idle_queries(time).await?, 0.0);
        let polling = tokio::spawn(async move {
            while execute(&mut idle, "SELECT 1").await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
        });
        let seen = database.idle_queries(time).await?;
        polling.abort();
        assert!((5.0..=11.0).contains(&seen), "{seen}");
        Ok(())
    }

    #[tokio::test]
    async fn nothing_is_left_behind_and_nothing_else_is_taken_away() -> Result<()> {
        let started = crate::postgres::tests::server();
        let server = Server::new(&started.url())?;
        let (removed, _kept) = (server.empty_database().await?, server.empty_database().await?);
        removed.remove().await?;
        server.sweep().await?;
        let mut connection = connect(&server.url).await?;
        let left: Vec<String> =
            query_scalar("SELECT datname FROM pg_database ORDER BY 1").fetch_all(&mut connection).await?;
        assert_eq!(left, ["postgres", "template0", "template1"]);
        Ok(())
    }
}
