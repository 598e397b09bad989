//! A schema of its own in a PostgreSQL database, for one test.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::place::{Place, Ran, Running};

static LAST: AtomicU32 = AtomicU32::new(0);

/// A place whose store is in the database. The schema is dropped with it.
pub(crate) struct Database {
    pub(crate) place: Place,
    pub(crate) server: String,
    pub(crate) schema: String,
}

impl Database {
    /// In the server that the tests share.
    pub(crate) fn new() -> Self {
        Self::on(test_postgres::url())
    }

    pub(crate) fn on(server: String) -> Self {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let schema = format!("cli_{}_{number}", std::process::id());
        Self { place: Place::new(), server, schema }
    }

    /// The store's URL, as the test's own superuser.
    pub(crate) fn url(&self) -> String {
        self.url_on(&self.server)
    }

    pub(crate) fn url_on(&self, server: &str) -> String {
        let mark = if server.contains('?') { '&' } else { '?' };
        format!("{server}{mark}schema={}", self.schema)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_as(&self.url(), args)
    }

    /// The URL is in the environment: it has a password.
    pub(crate) fn run_as(&self, url: &str, args: &[&str]) -> Ran {
        Ran::from(self.place.command(args).env("POSTDATE_STORE", url).output().unwrap())
    }

    pub(crate) fn ok(&self, args: &[&str]) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        ran
    }

    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        self.ok(&[args, &["--json"]].concat()).json()
    }

    pub(crate) fn one(&self, args: &[&str]) -> Value {
        let mut values = self.json(args);
        assert_eq!(values.len(), 1, "{args:?}: {values:?}");
        values.remove(0)
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.place.command(args);
        command.env("POSTDATE_STORE", self.url());
        Running::of(command)
    }

    pub(crate) fn until(&self, args: &[&str], wished: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        crate::place::until(args, || self.json(args), wished)
    }

    /// Runs statements as `psql` would.
    pub(crate) fn execute(&self, sql: &str) {
        execute(&self.server, sql);
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("SET lock_timeout TO '10s'; DROP SCHEMA IF EXISTS {} CASCADE", self.schema);
        // A server that is gone has no schema left.
        let _ = std::panic::catch_unwind(|| execute(&self.server, &drop));
    }
}

fn execute(server: &str, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = PgConnection::connect(server).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    });
}
