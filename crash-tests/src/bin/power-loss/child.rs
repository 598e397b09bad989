//! The process under which the power goes off.

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    time::Duration,
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use postdate::{
    Address, DelayedDelivery, Due, Message, MessageId, Queues, ReceiverExt as _, TransactionMode,
};
use tokio::time::timeout;

use crate::kind::connect;

pub(crate) const ENDPOINT: &str = "orders";
pub(crate) const BILLING: &str = "billing";

const SENDERS: usize = 4;

/// By itself it ends after this.
const LONGEST: Duration = Duration::from_secs(60);

/// `child URL ROUND`: sends, delivers and receives until it is killed. Writes a line for each step:
/// `stored ID`, `taking ID` before a message is taken out of its queue, `taken ID` afterwards.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let [url, round] = args else { anyhow::bail!("usage: child URL ROUND") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let work = work(url, round);
    runtime.block_on(async { timeout(LONGEST, work).await.context("nobody has killed this process")? })
}

async fn work(url: &str, round: &str) -> Result<()> {
    let (backend, queues) = connect(url).await?;
    for queue in [BILLING, "error"] {
        queues.create(&Address::new(queue)?).await?;
    }
    let delivery = DelayedDelivery::builder(ENDPOINT)
        .store(backend)
        .dispatcher(queues.dispatcher())
        .transaction_mode(TransactionMode::TransactionScope)
        .start()
        .await?;
    let senders = try_join_all((0..SENDERS).map(|sender| send(&delivery, format!("{round}-{sender}"))));
    tokio::try_join!(senders, receive(&*queues))?;
    Ok(())
}

async fn send(delivery: &DelayedDelivery, name: String) -> Result<()> {
    for number in 0_u64.. {
        let id = format!("{name}-{number}");
        let message = Message::new(body(&id)).id(MessageId::new(&id)?);
        // Some stay in the store.
        let due = if number % 3 == 0 { Due::after(Duration::from_secs(86_400)) } else { Due::NOW };
        delivery.send(BILLING, message, due).await?;
        say("stored", &id)?;
    }
    Ok(())
}

async fn receive(queues: &dyn Queues) -> Result<()> {
    let receiver = queues.receiver(&Address::new(BILLING)?).await?;
    loop {
        let mut batch = receiver.receive(NonZeroUsize::MIN).await?;
        // Half of them stay in the queue.
        let Some(queued) = batch.messages.pop().filter(|queued| queued.position % 2 == 0) else {
            std::mem::forget(batch.claim);
            continue;
        };
        let id = queued.message.id.as_str();
        say("taking", id)?;
        batch.claim.complete(&[queued.position]).await?;
        say("taken", id)?;
    }
}

/// What a message of this id contains.
pub(crate) fn body(id: &str) -> Vec<u8> {
    id.repeat(1 + id.len() * 7 % 40).into_bytes()
}

fn say(word: &str, id: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word} {id}").and_then(|()| out.flush()).context("nobody listens")
}
