//! A process to be killed: eight producers and a delivery on one SQLite file.
//!
//! `dispatcher-child FILE RUN MODE` sends messages as fast as it can, each id once, and writes the id of every
//! acknowledged one as a line. When its standard input ends it stops sending, delivers what is there and exits.

use std::{
    io::{self, Read, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use postdate::sqlite::Sqlite;
use postdate::{Address, DelayedDelivery, Due, Message, MessageId, Queues, TransactionMode};
use tokio::task::JoinSet;

const PRODUCERS: u32 = 8;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, run, mode] = args.as_slice() else { anyhow::bail!("usage: dispatcher-child FILE RUN MODE") };
    let delivery = Arc::new(deliver(Path::new(file), mode).await?);
    let stopping = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopping);
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Relaxed);
    });
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let (delivery, stopping) = (Arc::clone(&delivery), Arc::clone(&stopping));
        producers.spawn(produce(delivery, format!("{run}-{producer}"), stopping));
    }
    while let Some(produced) = producers.join_next().await {
        produced??;
    }
    while delivery.stats().await?.pending > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let delivery = Arc::into_inner(delivery).context("no producer is left that could share it")?;
    delivery.stop().await;
    Ok(())
}

async fn deliver(file: &Path, mode: &str) -> Result<DelayedDelivery> {
    let sqlite = Sqlite::open(file).await?;
    let queues = sqlite.queues();
    for queue in ["billing", "error"] {
        queues.create(&Address::new(queue)?).await?;
    }
    let mode = TransactionMode::ALL.into_iter().find(|known| known.to_string() == mode);
    let builder = DelayedDelivery::builder("kill").store(sqlite).dispatcher(queues.dispatcher());
    Ok(builder.transaction_mode(mode.context("unknown mode")?).start().await?)
}

/// Every id is sent once and never again, so that a second arrival is a duplicate of the delivery's making.
async fn produce(delivery: Arc<DelayedDelivery>, name: String, stopping: Arc<AtomicBool>) -> Result<()> {
    for number in 0_u64.. {
        if stopping.load(Relaxed) {
            break;
        }
        let id = format!("{name}-{number}");
        // Half of them are due while the next ones are being stored.
        let due = Due::after(Duration::from_millis(number % 2 * 20));
        let message = Message::new(id.clone()).header("id", id.as_str()).id(MessageId::new(&id)?);
        delivery.send("billing", message, due).await?;
        let mut out = io::stdout().lock();
        writeln!(out, "{id}")?;
        out.flush()?;
    }
    Ok(())
}
