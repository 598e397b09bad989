//! Messages that are delivered later: one that arrives, one that is taken back in time.
//!
//! `cargo run -p postdate --example delayed`

#![expect(clippy::print_stdout, reason = "it shows what happens")]

use std::{num::NonZeroUsize, time::Duration};

use postdate::{Address, DelayedDelivery, Due, Message, Queues, ReceiverExt, sqlite::Sqlite};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let sqlite = Sqlite::open(directory.path().join("postdate.db")).await?;
    let queues = sqlite.queues();
    let delivery = DelayedDelivery::builder("orders")
        .store(sqlite)
        .dispatcher(queues.dispatcher())
        .number_of_retries(7)
        .start()
        .await?;
    println!("delivering in mode {}", delivery.mode());

    let billing = Address::new("billing")?;
    queues.create(&billing).await?;
    let reminder = Message::new("is invoice 42 paid?").header("tenant", "acme");
    let sent = delivery.send("billing", reminder, Due::after(Duration::from_secs(2))).await?;
    println!("{} is due at {}", sent.id, sent.due);

    let escalation = Message::new("invoice 42 is overdue");
    let taken_back = delivery.send("billing", escalation, Due::after(Duration::from_secs(3_600))).await?;
    println!("taking the other one back: {:?}", delivery.cancel(&taken_back.id).await?);

    let mut batch = queues.receiver(&billing).await?.receive(NonZeroUsize::MIN).await?;
    for queued in &batch.messages {
        println!("received {:?}", queued.message.body);
        batch.claim.complete(&[queued.position]).await?;
    }
    delivery.stop().await;
    Ok(())
}
