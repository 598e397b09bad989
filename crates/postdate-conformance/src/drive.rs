//! The usual steps with a store or a queue.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use postdate_core::{
    Address, Claim, DelayedMessageStore, DelayedMessageStoreExt as _, DueBatch, DueMessage, Failure,
    ListQuery, MessageId, OutgoingMessage, QueuedMessage, Queues, ReceivedBatch, Receiver, ScheduledSummary,
    Selection, StoreError, StoreErrorKind,
};

use crate::{make::limit, patience::Patience};

/// A message that was fetched, and the claim on it alone.
pub(crate) struct Held {
    pub(crate) message: DueMessage,
    pub(crate) claim: Box<dyn Claim>,
    /// The store's clock when it was fetched.
    pub(crate) now: Timestamp,
}

/// Fetches until there is a message.
pub(crate) async fn hold_one(store: &dyn DelayedMessageStore) -> Result<Held> {
    hold_one_with(store, Patience::with("a due message")).await
}

pub(crate) async fn hold_one_with(store: &dyn DelayedMessageStore, patience: Patience) -> Result<Held> {
    loop {
        let DueBatch { mut messages, claim, now, .. } = store.fetch(limit(1)).await?;
        ensure!(messages.len() <= 1, "{} messages were fetched, at most one was asked for", messages.len());
        if let Some(message) = messages.pop() {
            return Ok(Held { message, claim, now });
        }
        patience.a_moment().await?;
    }
}

/// Fetches and delivers the one message that comes first: it is free, and must come at once.
pub(crate) async fn take_now(store: &dyn DelayedMessageStore) -> Result<DueMessage> {
    let mut messages = deliver(store.fetch(limit(1)).await?).await?;
    messages.pop().context("nothing was fetched though a message is due and free")
}

impl Held {
    pub(crate) fn id(&self) -> MessageId {
        self.message.message.id.clone()
    }

    /// Removes the message for good.
    pub(crate) async fn deliver(mut self) -> Result<DueMessage> {
        let removed = self.claim.remove(&[self.id()]).await?;
        ensure!(removed == [true], "removing what the claim holds was answered with {removed:?}");
        self.claim.commit().await?;
        Ok(self.message)
    }

    /// Counts a failed attempt.
    pub(crate) async fn fail(mut self, retry_after: Duration, error: &str) -> Result<()> {
        let failure = failure(self.id(), retry_after, error);
        let counted = self.claim.increment_failure_count(&[failure]).await?;
        ensure!(
            counted == [true],
            "counting a failure of what the claim holds was answered with {counted:?}"
        );
        Ok(self.claim.commit().await?)
    }
}

pub(crate) fn failure(id: MessageId, retry_after: Duration, error: &str) -> Failure {
    Failure { id, retry_after, error: error.to_owned() }
}

/// Removes all messages of a batch for good.
pub(crate) async fn deliver(batch: DueBatch) -> Result<Vec<DueMessage>> {
    let DueBatch { messages, mut claim, .. } = batch;
    let ids: Vec<_> = messages.iter().map(|due| due.message.id.clone()).collect();
    let removed = claim.remove(&ids).await?;
    ensure!(removed == vec![true; ids.len()], "removing what the claim holds was answered with {removed:?}");
    claim.commit().await?;
    Ok(messages)
}

/// Fetches and removes until so many messages came, in their order.
pub(crate) async fn drain(store: &dyn DelayedMessageStore, count: usize) -> Result<Vec<DueMessage>> {
    drain_with(store, count, Patience::with("all due messages")).await
}

pub(crate) async fn drain_with(
    store: &dyn DelayedMessageStore,
    count: usize,
    patience: Patience,
) -> Result<Vec<DueMessage>> {
    let mut drained = Vec::with_capacity(count);
    while drained.len() < count {
        let batch = store.fetch(limit(100)).await?;
        if batch.messages.is_empty() {
            patience.a_moment().await?;
        }
        drained.extend(deliver(batch).await?);
    }
    ensure!(drained.len() == count, "{} messages were delivered, {count} are there", drained.len());
    nothing_is_free(store).await?;
    Ok(drained)
}

/// Fails if a message can be fetched now.
pub(crate) async fn nothing_is_free(store: &dyn DelayedMessageStore) -> Result<()> {
    let batch = store.fetch(limit(100)).await?;
    ensure!(batch.messages.is_empty(), "fetched, but not free: {:?}", batch.messages);
    Ok(())
}

/// The listing of all messages that match, page by page.
pub(crate) async fn list_all(
    store: &dyn DelayedMessageStore,
    mut query: ListQuery,
) -> Result<Vec<ScheduledSummary>> {
    let mut all = Vec::new();
    loop {
        let page = store.list(&query).await?;
        let count = page.messages.len();
        ensure!(count <= query.limit.get(), "a page of {count} where at most {} were asked for", query.limit);
        all.extend(page.messages);
        match page.next {
            Some(cursor) => query.after = Some(cursor),
            None => return Ok(all),
        }
        ensure!(all.len() < 100_000, "the listing does not end");
    }
}

/// Sends messages that all have to arrive.
pub(crate) async fn send(queues: &dyn Queues, messages: &[OutgoingMessage]) -> Result<()> {
    let outcomes = queues.dispatcher().dispatch(messages, None).await;
    ensure!(outcomes.len() == messages.len(), "{} outcomes for {} messages", outcomes.len(), messages.len());
    outcomes.into_iter().try_for_each(|sent| Ok(sent?))
}

/// How many messages are in a queue, those that are held included.
pub(crate) async fn depth(queues: &dyn Queues, queue: &Address) -> Result<u64> {
    let listed = queues.list().await?;
    let found = listed.into_iter().find(|status| status.name == *queue);
    found.map(|status| status.depth).with_context(|| format!("{queue:?} is not listed"))
}

/// Receives until there is a batch.
pub(crate) async fn receive(receiver: &dyn Receiver, count: usize) -> Result<ReceivedBatch> {
    let patience = Patience::with("a message in the queue");
    loop {
        let batch = receiver.try_receive(&Selection::Next(limit(count))).await?;
        let received = batch.messages.len();
        ensure!(received <= count, "{received} messages were received, at most {count} were asked for");
        if received > 0 {
            return Ok(batch);
        }
        patience.a_moment().await?;
    }
}

/// Receives until so many messages are held by one claim.
pub(crate) async fn hold_all(
    receiver: &dyn Receiver,
    count: usize,
    patience: Patience,
) -> Result<ReceivedBatch> {
    loop {
        let batch = receiver.try_receive(&Selection::Next(limit(count + 1))).await?;
        ensure!(batch.messages.len() <= count, "received, but not there: {:?}", batch.messages);
        if batch.messages.len() == count {
            return Ok(batch);
        }
        drop(batch);
        patience.a_moment().await?;
    }
}

/// Completes all messages of a batch.
pub(crate) async fn complete(batch: ReceivedBatch) -> Result<Vec<QueuedMessage>> {
    let ReceivedBatch { messages, mut claim } = batch;
    let answers = claim.complete(&positions(&messages)).await?;
    ensure!(answers == vec![true; messages.len()], "completing what is held was answered with {answers:?}");
    Ok(messages)
}

/// Receives and moves until so many messages were moved.
pub(crate) async fn move_all(receiver: &dyn Receiver, count: usize, to: &Address) -> Result<()> {
    let mut moved = 0;
    while moved < count {
        let ReceivedBatch { messages, mut claim } = receive(receiver, count).await?;
        let answers = claim.move_to(&positions(&messages), to).await?;
        ensure!(answers == vec![true; messages.len()], "moving what is held was answered with {answers:?}");
        moved += messages.len();
    }
    Ok(())
}

/// Receives and completes until the queue is empty. What comes may be nothing.
pub(crate) async fn drain_queue(
    queues: &dyn Queues,
    queue: &Address,
    patience: Patience,
) -> Result<Vec<QueuedMessage>> {
    let receiver = queues.receiver(queue).await?;
    let mut all = Vec::new();
    loop {
        let messages = complete(receiver.try_receive(&Selection::Next(limit(100))).await?).await?;
        if !messages.is_empty() {
            all.extend(messages);
        } else if depth(queues, queue).await? == 0 {
            return Ok(all);
        } else {
            patience.a_moment().await?;
        }
    }
}

/// Receives and completes until so many messages came, in their order.
pub(crate) async fn empty(
    receiver: &dyn Receiver,
    count: usize,
    patience: Patience,
) -> Result<Vec<QueuedMessage>> {
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let batch = receiver.try_receive(&Selection::Next(limit(100))).await?;
        if batch.messages.is_empty() {
            patience.a_moment().await?;
        }
        all.extend(complete(batch).await?);
    }
    nothing_to_receive(receiver).await?;
    Ok(all)
}

/// Fails if a message can be received now.
pub(crate) async fn nothing_to_receive(receiver: &dyn Receiver) -> Result<()> {
    let batch = receiver.try_receive(&Selection::Next(limit(100))).await?;
    ensure!(batch.messages.is_empty(), "received, but not free: {:?}", batch.messages);
    Ok(())
}

/// The ids of messages, to compare with texts.
pub(crate) fn names(messages: &[QueuedMessage]) -> Vec<&str> {
    messages.iter().map(|queued| queued.message.id.as_str()).collect()
}

pub(crate) fn positions(messages: &[QueuedMessage]) -> Vec<u64> {
    messages.iter().map(|message| message.position).collect()
}

/// Fails if the call was not refused for this reason.
pub(crate) fn refused<T>(call: Result<T, StoreError>, reason: StoreErrorKind) -> Result<()> {
    match call {
        Err(error) if error.kind() == reason => Ok(()),
        Err(error) => bail!("refused as {:?}, not as {reason:?}: {error}", error.kind()),
        Ok(_) => bail!("accepted, not refused as {reason:?}"),
    }
}
