//! What the conformance suite cannot see: behaviour under paused time.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::time;

use super::Memory;
use crate::{
    Address, Backend, DelayedMessageStore, DelayedMessageStoreExt as _, Due, EndpointName, Message,
    MessageId, Queues as _, ReceiverExt as _, StoreErrorKind, TokioClock, TransactionMode,
};

const TERM: Duration = Duration::from_secs(30);
const ONE: NonZeroUsize = NonZeroUsize::MIN;
const TWO: NonZeroUsize = ONE.saturating_add(1);

fn memory() -> Memory {
    let clock = TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    Memory::builder().clock(clock).lease(TERM).build()
}

async fn open(memory: &Memory, mode: TransactionMode) -> Arc<dyn DelayedMessageStore> {
    let endpoint = EndpointName::new("orders").unwrap();
    memory.set_up(&endpoint).await.unwrap();
    memory.open(&endpoint, mode).await.unwrap()
}

fn billing() -> Address {
    Address::new("billing").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_ends_when_the_clock_says_so_and_not_before() {
    let store = open(&memory(), TransactionMode::ReceiveOnly).await;
    store.store_one(Message::new("x").to(billing(), Due::NOW)).await.unwrap();
    let batch = store.fetch(ONE).await.unwrap();
    assert_eq!(batch.claim.expires(), Some(time::Instant::now().into_std() + TERM));

    time::advance(TERM - Duration::from_millis(1)).await;
    assert!(store.fetch(ONE).await.unwrap().messages.is_empty());
    time::advance(Duration::from_millis(1)).await;
    assert_eq!(store.fetch(ONE).await.unwrap().messages.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_change_ends_for_what_is_earlier_than_was_said_and_for_nothing_else() {
    let store = open(&memory(), TransactionMode::ReceiveOnly).await;
    let at = |seconds| Message::new("x").to(billing(), Due::after(Duration::from_secs(seconds)));
    store.store_one(at(60)).await.unwrap();
    store.next_due(&[]).await.unwrap();
    store.changed().now_or_never();

    store.store_one(at(61)).await.unwrap();
    assert_eq!(store.changed().now_or_never(), None, "61 s is not earlier than 60 s");
    store.store_one(at(59)).await.unwrap();
    assert_eq!(store.changed().now_or_never(), Some(()));
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_is_compared_and_not_what_became_of_it() {
    let store = open(&memory(), TransactionMode::ReceiveOnly).await;
    let message = |due| [Message::new("x").id(MessageId::new("42").unwrap()).to(billing(), due)];
    let at: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    let later = at + TERM;
    store.store(&message(Due::at(at))).await.unwrap();
    store.reschedule(&MessageId::new("42").unwrap(), Due::at(later)).await.unwrap();

    assert_eq!(store.store(&message(Due::at(at))).await.unwrap(), [later]);
    let other = store.store(&message(Due::at(later))).await;
    assert_eq!(other.unwrap_err().kind(), StoreErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn an_absolute_due_time_is_not_compared_with_a_relative_one() {
    let store = open(&memory(), TransactionMode::ReceiveOnly).await;
    let message = |due| [Message::new("x").id(MessageId::new("42").unwrap()).to(billing(), due)];
    let due = store.store(&message(Due::after(TERM))).await.unwrap();
    assert_eq!(store.store(&message(Due::at(due[0] + TERM))).await.unwrap(), due);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_lease_is_over_does_nothing() {
    let memory = memory();
    let queues = memory.queues();
    queues.create(&billing()).await.unwrap();
    let store = open(&memory, TransactionMode::TransactionScope).await;
    let id = MessageId::new("42").unwrap();
    store.store_one(Message::new("x").id(id.clone()).to(billing(), Due::NOW)).await.unwrap();
    let mut batch = store.fetch(ONE).await.unwrap();
    let message = batch.messages[0].message.clone();
    queues.dispatcher().dispatch(&[message], batch.claim.enlist()).await.pop().unwrap().unwrap();
    assert_eq!(batch.claim.remove(&[id]).await.unwrap(), [true]);

    time::advance(TERM).await;
    assert_eq!(batch.claim.commit().await.unwrap_err().kind(), StoreErrorKind::ClaimLost);
    assert_eq!(queues.list().await.unwrap()[0].depth, 0);
    assert_eq!(store.fetch(ONE).await.unwrap().messages.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_wakes_when_the_lease_of_another_ends() {
    let queues = memory().queues();
    queues.create(&billing()).await.unwrap();
    let message = Message::new("x").to(billing(), Due::NOW).message;
    queues.dispatcher().dispatch(&[message], None).await.pop().unwrap().unwrap();
    let receiver = queues.receiver(&billing()).await.unwrap();
    let stuck = receiver.receive(ONE).await.unwrap();

    let start = time::Instant::now();
    let batch = receiver.receive(ONE).await.unwrap();
    assert_eq!((start.elapsed(), batch.messages[0].deliveries), (TERM, 1));
    drop(stuck);
}

fn in_transactions() -> Memory {
    let clock = TokioClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    Memory::builder().clock(clock).lease(TERM).claims_in_transactions().build()
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_the_server_ended_has_done_nothing_and_says_so() {
    let store = open(&in_transactions(), TransactionMode::ReceiveOnly).await;
    let ids = ["a", "b"].map(|id| MessageId::new(id).unwrap());
    for id in &ids {
        store.store_one(Message::new("x").id(id.clone()).to(billing(), Due::NOW)).await.unwrap();
    }
    let mut batch = store.fetch(TWO).await.unwrap();
    assert_eq!(batch.claim.remove(&ids[..1]).await.unwrap(), [true]);

    time::advance(TERM).await;
    assert_eq!(batch.claim.remove(&ids[1..]).await.unwrap(), [false]);
    batch.claim.release(&ids).await.unwrap();
    assert_eq!(batch.claim.commit().await.unwrap_err().kind(), StoreErrorKind::ClaimLost);
    assert_eq!(store.fetch(TWO).await.unwrap().messages.len(), 2);
}
