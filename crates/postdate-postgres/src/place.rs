//! A schema with our tables: what all handles on it share.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use postdate_core::{
    Address, Operation, StoreError, StoreErrorKind,
    wake::{Topic, Wake, Wakes},
};

use crate::{
    Options,
    connections::Connections,
    error::{Fault, Result},
    group::Waiting,
    listener::Listener,
    names::Names,
    notifier::Notifier,
    sender,
    server::Engine,
    sql::Statements,
    storer,
    time::PgInstant,
};

/// No call takes longer: then the server or the way to it is stuck, and whatever was begun is undone.
const CALL_LIMIT: Duration = Duration::from_secs(40);

/// So many claims at most are open at a time; each has a connection.
const MOST_CLAIMS: usize = 64;

/// An open handle on a schema.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) names: Names,
    pub(crate) engine: Engine,
    pub(crate) sql: Statements,
    /// For calls that end as they return.
    pub(crate) connections: Arc<Connections>,
    /// For claims, which last as long as their holders like: no call has to wait for them.
    pub(crate) claims: Arc<Connections>,
    /// How long a claim lasts whose holder says nothing.
    pub(crate) claim_limit: Duration,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) listener: Listener,
    pub(crate) notifier: Notifier,
    pub(crate) stores: Waiting<storer::Job>,
    pub(crate) sends: Waiting<sender::Job>,
    shown: String,
}

impl Place {
    /// Connects. Changes nothing.
    pub(crate) async fn open(options: Options) -> Result<Arc<Self>, StoreError> {
        let shown = options.shown.clone();
        let opened = async {
            let names = options.names()?;
            let connections =
                Connections::new(options.connect.clone(), options.claim_limit, options.connections);
            let mut connection = connections.lend().await?;
            let engine = Engine::of(&mut connection).await?;
            connection.give_back();
            let (wakes, sql) = (Arc::new(Wakes::default()), Statements::new(&names, engine));
            // Tells handles apart, also those of other machines.
            let speaker = RandomState::new().hash_one(std::process::id());
            let notify = Arc::clone(&sql.notify);
            Ok(Arc::new(Self {
                listener: Listener::new(&options, engine, &names, Arc::clone(&wakes), speaker),
                notifier: Notifier::new(Arc::clone(&connections), engine, &names, notify, speaker),
                sql,
                stores: Waiting::default(),
                sends: Waiting::default(),
                claims: Connections::new(options.connect, options.claim_limit, MOST_CLAIMS),
                claim_limit: options.claim_limit,
                shown: options.shown,
                names,
                engine,
                connections,
                wakes,
            }))
        };
        opened.await.map_err(|fault: Fault| fault.into_error(Operation::Connect, &shown))
    }

    /// Does what is part of a call, within the time that a call may take.
    pub(crate) async fn call<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T, StoreError> {
        within(work).await.map_err(|fault| self.error(fault, operation))
    }

    /// Messages of an endpoint are due at some times now, and that is committed.
    pub(crate) fn told<'a>(
        &self,
        endpoint: i32,
        now: PgInstant,
        dues: impl Iterator<Item = (PgInstant, &'a Address)>,
    ) {
        let topic = Topic::Endpoint(endpoint.into());
        let mut first = None;
        for (due, destination) in dues {
            self.wakes.ring(topic, due.micros(), Some(destination));
            first = Some(first.map_or(due, |first: PgInstant| first.min(due)));
        }
        if let Some(first) = first {
            self.notifier.tell(topic, first, now);
        }
    }

    /// A message of an endpoint is due at this time now, and that is committed.
    pub(crate) fn told_of(&self, endpoint: i32, now: PgInstant, due: PgInstant) {
        let topic = Topic::Endpoint(endpoint.into());
        self.wakes.ring(topic, due.micros(), None);
        self.notifier.tell(topic, due, now);
    }

    /// Something that was held is free.
    pub(crate) fn freed(&self, endpoint: i32) {
        self.arrived(Topic::Endpoint(endpoint.into()));
    }

    /// Something arrived in a queue, and that is committed.
    pub(crate) fn arrived(&self, topic: Topic) {
        self.wakes.ring(topic, i64::MIN, None);
        self.notifier.tell(topic, PgInstant::BEFORE_ALL, PgInstant::BEFORE_ALL);
    }

    /// Waits for a reason to look.
    pub(crate) async fn changed(&self, wake: &Wake) {
        let longest = self.listener.listen();
        // What nobody is told of is found by looking.
        let _ = tokio::time::timeout(longest, wake.changed()).await;
    }

    pub(crate) fn error(&self, fault: Fault, operation: Operation) -> StoreError {
        fault.into_error(operation, &self.shown)
    }
}

/// Gives up on a server that is stuck.
pub(crate) async fn within<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CALL_LIMIT, work).await.unwrap_or_else(|_| {
        let seconds = CALL_LIMIT.as_secs();
        let detail =
            format!("the server did not answer within {seconds} s; what was begun is undone, try again");
        Err(Fault::new(StoreErrorKind::Unavailable, detail))
    })
}
