//! The connections of a handle.
//!
//! One rule, for which this is not the driver's own pool: a connection is given back by whoever knows that it is in
//! order, and closed by everybody else. A call that failed or was dropped half-way leaves nothing behind, and the
//! server frees at once what such a connection held. It also costs no round trip to take or to give back.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use postdate_core::StoreErrorKind;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::{Fault, Result};

/// How long a new connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long to wait for one while all are lent.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// A connection that was not used for so long is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(600);

/// What every session begins with. The time-outs free what a program holds that is frozen or cut off.
///
/// Tables like these grow from nothing faster than the server's statistics of them, and a prepared statement keeps the
/// plan that was good for none or few rows: to read and sort them all. So an index is used wherever there is one.
const SESSION: &str = "
    SET default_transaction_isolation TO 'read committed';
    SET statement_timeout TO 30000;
    SET lock_timeout TO 2000;
    SELECT set_config(name, 'off', false) FROM pg_catalog.pg_settings
        WHERE name IN ('enable_seqscan', 'enable_bitmapscan', 'jit')";

/// Lends connections, at most so many at a time.
pub(crate) struct Connections {
    options: PgConnectOptions,
    /// After so long without a word the server ends a transaction.
    idle_limit: Duration,
    idle: Mutex<Vec<Idle>>,
    permits: Arc<Semaphore>,
}

struct Idle {
    connection: PgConnection,
    since: Instant,
}

impl Connections {
    pub(crate) fn new(options: PgConnectOptions, idle_limit: Duration, most: usize) -> Arc<Self> {
        Arc::new(Self {
            options,
            idle_limit,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(most)),
        })
    }

    /// Lends a connection: the one that was used last, or a new one.
    pub(crate) async fn lend(self: &Arc<Self>) -> Result<Lent> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = tokio::time::timeout(WAIT_LIMIT, permit).await.map_err(|_| busy())?;
        let permit = permit.expect("the semaphore is never closed");
        let idle = self.idle().pop();
        match idle {
            Some(Idle { connection, since }) if since.elapsed() < IDLE_LIMIT => {
                Ok(self.lent(connection, permit))
            }
            _ => self.connect(permit).await,
        }
    }

    /// Connects in a task of its own: if nobody waits for the connection any more, the next one finds it ready.
    async fn connect(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Result<Lent> {
        let (connected, lent) = oneshot::channel();
        let owner = Arc::clone(self);
        tokio::spawn(async move {
            let connection = connect(&owner.options, owner.idle_limit).await;
            if let Err(Ok(unwanted)) = connected.send(connection.map(|it| owner.lent(it, permit))) {
                unwanted.give_back();
            }
        });
        lent.await.unwrap_or_else(|_| {
            Err(Fault::new(StoreErrorKind::Unavailable, "the runtime was shut down meanwhile; try again"))
        })
    }

    fn lent(self: &Arc<Self>, connection: PgConnection, permit: OwnedSemaphorePermit) -> Lent {
        Lent { connection: Some(connection), owner: Arc::clone(self), permit }
    }

    fn take_back(&self, connection: PgConnection) {
        let mut idle = self.idle();
        let now = Instant::now();
        idle.retain(|idle| now.duration_since(idle.since) < IDLE_LIMIT);
        idle.push(Idle { connection, since: now });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection. Unless it is [given back](Self::give_back) it is closed, and whatever was begun on it is undone.
#[derive(Debug)]
pub(crate) struct Lent {
    /// There until it is given back.
    connection: Option<PgConnection>,
    owner: Arc<Connections>,
    #[expect(dead_code, reason = "returns with this")]
    permit: OwnedSemaphorePermit,
}

impl Lent {
    /// Gives the connection back, in order and in no transaction.
    pub(crate) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.owner.take_back(connection);
        }
    }
}

/// Where a call failed the idle ones are likely to be as broken: the server was stopped, say. They go, too.
impl Drop for Lent {
    fn drop(&mut self) {
        if self.connection.is_some() {
            self.owner.idle().clear();
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect(IS_THERE)
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect(IS_THERE)
    }
}

const IS_THERE: &str = "it is taken by give_back alone, which consumes this";

/// The driver's own would show the password.
impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("idle", &self.idle().len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").field("since", &self.since).finish_non_exhaustive()
    }
}

/// The time-out of idle transactions does not end a session whose client does not read what it is sent: that is up to
/// the kernel of the server, where it is one that can.
fn session_limits(idle_limit: Duration) -> String {
    let limit = idle_limit.as_millis();
    format!(
        "; SET idle_in_transaction_session_timeout TO {limit};
         SELECT set_config(name, '{limit}', false) FROM pg_catalog.pg_settings
             WHERE name = 'tcp_user_timeout' AND version() LIKE 'PostgreSQL%linux%'"
    )
}

async fn connect(options: &PgConnectOptions, idle_limit: Duration) -> Result<PgConnection> {
    let connect = async {
        let mut connection = PgConnection::connect_with(options).await?;
        let limit = session_limits(idle_limit);
        sqlx::raw_sql(AssertSqlSafe(SESSION.to_owned() + &limit)).execute(&mut connection).await?;
        Ok(connection)
    };
    match tokio::time::timeout(CONNECT_LIMIT, connect).await {
        Ok(connected) => connected,
        Err(_) => {
            let seconds = CONNECT_LIMIT.as_secs();
            let detail = format!("the server did not answer within {seconds} s; is the address right?");
            Err(Fault::new(StoreErrorKind::Unavailable, detail))
        }
    }
}

fn busy() -> Fault {
    let detail = "all connections of this handle are in use; commit or drop claims, or raise `connections`";
    Fault::new(StoreErrorKind::Unavailable, detail)
}
