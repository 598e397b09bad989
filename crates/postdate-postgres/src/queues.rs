//! Durable queues in the schema.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use postdate_core::{
    Address, Dispatcher, Operation, QueueStatus, QueuedMessage, Receiver, StoreError, wake::Topic,
};
use sqlx::{Row, postgres::PgRow};
use tokio::sync::watch;

use crate::{
    Options, Postgres,
    dispatcher::QueueDispatcher,
    error::{Fault, Result},
    place::Place,
    receiver::QueueReceiver,
    record::{self, Content},
    schema,
    sender::MAX_QUEUED_BYTES,
    sql::query,
    time::PgInstant,
};

/// So many messages are purged by one transaction: nobody should have to wait for all.
const SLICE: i64 = 10_000;

/// So many messages are read at a time by who browses.
const PAGE: usize = 1_000;

/// The queues in a schema of a PostgreSQL database.
///
/// Clones share the connections.
#[derive(Clone, Debug)]
pub struct Queues {
    place: Arc<Place>,
}

/// A queue that is there, for one receiver.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) place: Arc<Place>,
    pub(crate) number: i32,
    pub(crate) name: Address,
    /// What is being given back, until its sender is dropped.
    releases: Mutex<Vec<watch::Receiver<()>>>,
}

impl Queues {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        Self { place }
    }

    /// Connects by URL, as [`Postgres::connect`] does. Where there is a [`Postgres`] already,
    /// [`queues`](Postgres::queues) shares its connections, and is cheaper.
    ///
    /// # Errors
    /// As [`Postgres::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Ok(Postgres::connect(url).await?.queues())
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`Postgres::with_options`].
    pub async fn with_options(options: Options) -> Result<Self, StoreError> {
        Ok(Self { place: Place::open(options).await? })
    }

    /// The number of a queue that should be there.
    async fn number(&self, name: &Address) -> Result<i32> {
        let mut connection = self.place.connections.lend().await?;
        let found = match schema::version(&self.place, &mut connection).await? {
            0 => None,
            _ => query(&self.place.sql.queue).bind(name.as_str()).fetch_optional(&mut *connection).await?,
        };
        connection.give_back();
        Ok(found.ok_or_else(|| Fault::no_such_queue(name))?.try_get(0)?)
    }
}

#[async_trait]
impl postdate_core::Queues for Queues {
    async fn create(&self, queue: &Address) -> Result<bool, StoreError> {
        let create = async {
            let mut connection = self.place.connections.lend().await?;
            schema::set_up(&self.place, &mut connection, None).await?;
            let added =
                query(&self.place.sql.add_queue).bind(queue.as_str()).execute(&mut *connection).await?;
            connection.give_back();
            Ok(added.rows_affected() == 1)
        };
        self.place.call(Operation::Administer, create).await
    }

    async fn list(&self) -> Result<Vec<QueueStatus>, StoreError> {
        let list = async {
            let mut connection = self.place.connections.lend().await?;
            let rows = match schema::version(&self.place, &mut connection).await? {
                0 => Vec::new(),
                _ => query(&self.place.sql.list_queues).fetch_all(&mut *connection).await?,
            };
            connection.give_back();
            rows.iter().filter_map(|row| status(row).transpose()).collect()
        };
        self.place.call(Operation::Administer, list).await
    }

    async fn purge(&self, queue: &Address) -> Result<u64, StoreError> {
        let sql = &self.place.sql;
        let begin = async {
            let number = self.number(queue).await?;
            let mut connection = self.place.connections.lend().await?;
            let row = query(&sql.last_queued).bind(number).fetch_one(&mut *connection).await?;
            connection.give_back();
            Ok((number, row.try_get::<Option<i64>, _>(0)?))
        };
        // What arrives from here on is left.
        let (number, end) = self.place.call(Operation::Administer, begin).await?;
        let (mut purged, mut after) = (0, 0);
        loop {
            let slice = async {
                let mut connection = self.place.connections.lend().await?;
                let purge = query(&sql.purge).bind(number).bind(after).bind(end).bind(SLICE);
                let row = purge.fetch_one(&mut *connection).await?;
                connection.give_back();
                Ok((row.try_get::<i64, _>(0)?, row.try_get::<Option<i64>, _>(1)?))
            };
            let (count, last) = self.place.call(Operation::Administer, slice).await?;
            purged += count.unsigned_abs();
            match last {
                Some(last) if count == SLICE => after = last,
                _ => return Ok(purged),
            }
        }
    }

    async fn browse(
        &self,
        queue: &Address,
        after: u64,
        limit: NonZeroUsize,
    ) -> Result<Vec<QueuedMessage>, StoreError> {
        let browse = async {
            let number = self.number(queue).await?;
            let mut connection = self.place.connections.lend().await?;
            let mut after = i64::try_from(after).unwrap_or(i64::MAX);
            let mut messages = Vec::new();
            // The limit counts what can be read: a shorter answer means the end of the queue.
            while messages.len() < limit.get() {
                let most = PAGE.min(limit.get() - messages.len());
                let page = query(&self.place.sql.browse).bind(number).bind(after).bind(most as i64);
                let rows = page.fetch_all(&mut *connection).await?;
                for row in &rows {
                    after = row.try_get(0)?;
                    messages.extend(message(row, queue)?.ok());
                }
                if rows.len() < most {
                    break;
                }
            }
            connection.give_back();
            Ok(messages)
        };
        self.place.call(Operation::Administer, browse).await
    }

    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(QueueDispatcher::new(Arc::clone(&self.place)))
    }

    fn max_message_bytes(&self) -> usize {
        MAX_QUEUED_BYTES
    }

    async fn receiver(&self, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError> {
        let number = self.place.call(Operation::Receive, self.number(queue)).await?;
        let (place, name) = (Arc::clone(&self.place), queue.clone());
        let queue = Queue { place, number, name, releases: Mutex::default() };
        Ok(Arc::new(QueueReceiver::new(Arc::new(queue))))
    }
}

impl Queue {
    pub(crate) fn topic(&self) -> Topic {
        Topic::Queue(self.number.into())
    }

    /// Something is given back from now on until this is dropped.
    pub(crate) fn releasing(&self) -> watch::Sender<()> {
        let (sender, receiver) = watch::channel(());
        let mut releases = self.releases.lock().unwrap_or_else(PoisonError::into_inner);
        releases.retain(|release| release.has_changed().is_ok());
        releases.push(receiver);
        sender
    }

    /// Waits for what is being given back now: who drops a claim and receives again gets the same messages first.
    pub(crate) async fn released(&self) {
        let releases = self.releases.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for mut release in releases {
            // An error says that the sender is gone, which is what is waited for.
            drop(release.changed().await);
        }
    }
}

/// A queue in a list; none if somebody else gave it a name that is no address.
fn status(row: &PgRow) -> Result<Option<QueueStatus>> {
    let Ok(name) = record::address(row, 0, None)? else { return Ok(None) };
    let oldest: Option<PgInstant> = row.try_get_unchecked(2)?;
    Ok(Some(QueueStatus { name, depth: record::count(row, 1)?, oldest: oldest.map(PgInstant::timestamp) }))
}

/// Reads a row of position, arrival, deliveries, id, headers and body.
pub(crate) fn message(row: &PgRow, queue: &Address) -> sqlx::Result<Content<QueuedMessage>> {
    let position: i64 = row.try_get(0)?;
    let enqueued: PgInstant = row.try_get_unchecked(1)?;
    let deliveries = record::small_count(row, 2)?;
    let message = record::message(row, 3, queue.clone())?;
    Ok(message.map(|message| QueuedMessage {
        message,
        position: position.unsigned_abs(),
        enqueued: enqueued.timestamp(),
        deliveries,
    }))
}
