//! The transaction of a claim, which a dispatcher joins in
//! [`TransactionScope`](postdate_core::TransactionMode::TransactionScope) mode.

use std::{collections::BTreeSet, sync::Arc};

use postdate_core::wake::Topic;
use sqlx::PgConnection;

use crate::{
    connections::{Connections, Lent},
    error::Result,
};

/// An open transaction: what is sent in it is written to the queues if and only if the claim's messages are removed.
#[derive(Debug)]
pub struct PostgresTransaction {
    connection: Lent,
    /// What somebody may wait for that happens with the commit.
    pub(crate) topics: BTreeSet<i64>,
}

impl PostgresTransaction {
    pub(crate) async fn begin(connections: &Arc<Connections>) -> Result<Self> {
        let mut connection = connections.lend().await?;
        sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
        Ok(Self { connection, topics: BTreeSet::new() })
    }

    /// The connection that the transaction is on, for statements that are to be part of it. A statement that
    /// fails makes all of it fail. Do not end the transaction, and do not `begin` another one: the driver does not know
    /// of this one.
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Something was put into the queue of this number.
    pub(crate) fn sent_to(&mut self, queue: i32) {
        self.topics.insert(queue.into());
    }

    /// Commits, and gives the connection back. Answers with the queues that were sent to.
    pub(crate) async fn commit(mut self) -> Result<impl Iterator<Item = Topic>> {
        sqlx::raw_sql("COMMIT").execute(&mut *self.connection).await?;
        self.connection.give_back();
        Ok(self.topics.into_iter().map(Topic::Queue))
    }

    /// Undoes everything, and gives the connection back.
    pub(crate) async fn roll_back(mut self) -> Result<()> {
        sqlx::raw_sql("ROLLBACK").execute(&mut *self.connection).await?;
        self.connection.give_back();
        Ok(())
    }
}
