//! Storing in the caller's own transaction.

use jiff::Timestamp;
use postdate_core::{DelayedMessage, EndpointName, Operation, StoreError};
use sqlx::PgConnection;

use crate::{
    Postgres,
    error::Result,
    notifier::word_of_caller,
    schema,
    sql::query,
    storer::{Batch, check, within_transaction},
    time::PgInstant,
};

impl Postgres {
    /// Stores messages in the transaction that `connection` is in: they are scheduled if and only if that commits.
    /// Answers with their due times.
    ///
    /// The connection is to the same database. Relative delays count from this call, by the server's clock. What is due
    /// within a minute is told to dispatchers by the commit itself, which makes such commits wait for each other: see
    /// the [crate's documentation](crate#transactional-enqueue).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use postdate_core::{Address, Due, EndpointName, Message};
    /// # async fn order(postgres: postdate_postgres::Postgres, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let reminder = Message::new("is invoice 42 paid?")
    ///     .to(Address::new("billing")?, Due::after(Duration::from_secs(86_400)));
    /// let mut transaction = pool.begin().await?;
    /// sqlx::query("INSERT INTO invoice (id) VALUES (42)").execute(&mut *transaction).await?;
    /// postgres.store_in(&mut transaction, &EndpointName::new("orders")?, &[reminder]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`DelayedMessageStore::store`](postdate_core::DelayedMessageStore::store). After
    /// [`Conflict`](postdate_core::StoreErrorKind::Conflict), [`TooLarge`](postdate_core::StoreErrorKind::TooLarge) and
    /// [`Invalid`](postdate_core::StoreErrorKind::Invalid) none is stored and the transaction can go on; after other
    /// errors it has failed.
    pub async fn store_in(
        &self,
        connection: &mut PgConnection,
        endpoint: &EndpointName,
        messages: &[DelayedMessage],
    ) -> Result<Vec<Timestamp>, StoreError> {
        self.place.call(Operation::Store, self.enqueue(connection, endpoint, messages)).await
    }

    async fn enqueue(
        &self,
        connection: &mut PgConnection,
        endpoint: &EndpointName,
        messages: &[DelayedMessage],
    ) -> Result<Vec<Timestamp>> {
        check(messages)?;
        let number = schema::endpoint(&self.place, connection, endpoint).await?;
        let batch = Batch::of(messages.iter().map(|message| (number, message)));
        let stored = within_transaction(connection, &self.place.sql, &batch).await?;
        let first = stored.dues.iter().min();
        let word = first.and_then(|first| word_of_caller(number, *first, stored.now));
        if let Some(word) = word.filter(|_| self.place.engine.notifies()) {
            let notify = query(&self.place.sql.notify).bind(self.place.names.channel()).bind(vec![word]);
            notify.execute(connection).await?;
        }
        Ok(stored.dues.into_iter().map(PgInstant::timestamp).collect())
    }
}
