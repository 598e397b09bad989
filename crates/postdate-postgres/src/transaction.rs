//! The transaction of a claim, which a dispatcher joins in
//! [`TransactionScope`](postdate_core::TransactionMode::TransactionScope) mode.

use std::{collections::BTreeSet, sync::Arc};

use postdate_core::{StoreErrorKind, wake::Topic};
use sqlx::PgConnection;

use crate::{
    connections::Lent,
    error::{Fault, Result},
    place::Place,
};

/// An open transaction: what is sent in it is written to the queues if and only if the claim's messages are removed.
#[derive(Debug)]
pub struct PostgresTransaction {
    connection: Lent,
    place: Arc<Place>,
    /// What somebody may wait for that happens with the commit.
    topics: BTreeSet<i64>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sound,
    /// Work was begun that did not end, or not well: nobody knows what was done.
    Broken,
}

impl PostgresTransaction {
    pub(crate) async fn begin(place: &Arc<Place>) -> Result<Self> {
        let mut connection = place.claims.lend().await?;
        sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
        let (topics, state) = (BTreeSet::new(), State::Sound);
        Ok(Self { connection, place: Arc::clone(place), topics, state })
    }

    /// The handle whose transaction it is.
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// The connection, for work of which all must be done or the transaction is lost: also if the future is dropped
    /// before [`end_work`](Self::end_work).
    pub(crate) fn begin_work(&mut self) -> Result<&mut PgConnection> {
        self.check()?;
        self.state = State::Broken;
        Ok(&mut self.connection)
    }

    /// What was begun is done.
    pub(crate) fn end_work(&mut self) {
        self.state = State::Sound;
    }

    fn check(&self) -> Result<()> {
        match self.state {
            State::Sound => Ok(()),
            State::Broken => {
                let detail = "a statement of this transaction failed, and all of it is undone; try again";
                Err(Fault::new(StoreErrorKind::Unavailable, detail))
            }
        }
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
        self.check()?;
        // Alone, the second would be answered with success where it only ends what has failed before.
        sqlx::raw_sql("SELECT 1; COMMIT").execute(&mut *self.connection).await?;
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
