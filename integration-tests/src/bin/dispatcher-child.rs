//! A process to be killed or paused: a delivery on one SQLite file, and perhaps producers.
//!
//! `dispatcher-child FILE HISTORY PROCESS MODE ROLE` writes what happens to the file HISTORY and the id of every
//! message that was acknowledged as a line. When its standard input ends it stops sending, delivers what is there
//! and exits. As `held` it has no producers, and sends nothing before it reads something there.

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
use async_trait::async_trait;
use postdate::sqlite::Sqlite;
use postdate::{
    Address, DelayedDelivery, DispatchError, Dispatcher, Due, Enlistment, Message, MessageId,
    OutgoingMessage, Queues, StoreError, TransactionMode,
};
use postdate_history::{RecordedBackend, RecordedDispatcher, Way, file::Recorder};
use tokio::task::JoinSet;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, history, process, mode, role] = args.as_slice() else {
        anyhow::bail!("usage: dispatcher-child FILE HISTORY PROCESS MODE ROLE")
    };
    let (producers, open) = match role.as_str() {
        "busy" => (8, true),
        "held" => (0, false),
        other => anyhow::bail!("there is no role {other:?}"),
    };
    let (gate, stopping) = (Arc::new(AtomicBool::new(open)), Arc::new(AtomicBool::new(false)));
    let recorder = Arc::new(Recorder::open(Path::new(history), Some(process.parse()?))?);
    let delivery = Arc::new(deliver(Path::new(file), mode, &gate, recorder).await?);
    let flag = Arc::clone(&stopping);
    thread::spawn(move || {
        let mut input = io::stdin();
        let _ = input.read(&mut [0]);
        gate.store(true, Relaxed);
        let _ = input.read_to_end(&mut Vec::new());
        flag.store(true, Relaxed);
    });
    let mut tasks = JoinSet::new();
    for producer in 0..producers {
        let (delivery, stopping) = (Arc::clone(&delivery), Arc::clone(&stopping));
        tasks.spawn(produce(delivery, format!("{process}-{producer}"), stopping));
    }
    while let Some(produced) = tasks.join_next().await {
        produced??;
    }
    while !stopping.load(Relaxed) || delivery.stats().await?.pending > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let delivery = Arc::into_inner(delivery).context("no producer is left that could share it")?;
    delivery.stop().await;
    Ok(())
}

async fn deliver(
    file: &Path,
    mode: &str,
    gate: &Arc<AtomicBool>,
    recorder: Arc<Recorder>,
) -> Result<DelayedDelivery> {
    let sqlite = Sqlite::open(file).await?;
    let queues = sqlite.queues();
    for queue in ["billing", "error"] {
        queues.create(&Address::new(queue)?).await?;
    }
    let mode = TransactionMode::ALL.into_iter().find(|known| known.to_string() == mode);
    let dispatcher = |way| {
        let inner = Gated { inner: queues.dispatcher(), gate: Arc::clone(gate) };
        RecordedDispatcher::new(inner, way, Arc::clone(&recorder))
    };
    let builder = DelayedDelivery::builder("kill")
        .store(RecordedBackend::new(sqlite, Arc::clone(&recorder)))
        .dispatcher(dispatcher(Way::Destination))
        .error_dispatcher(dispatcher(Way::ErrorQueue));
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

/// Queues that take nothing before the gate is open.
#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Dispatcher>,
    gate: Arc<AtomicBool>,
}

#[async_trait]
impl Dispatcher for Gated {
    async fn joins(&self, transaction: Enlistment<'_>) -> Result<bool, StoreError> {
        self.inner.joins(transaction).await
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        within: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        while !self.gate.load(Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.inner.dispatch(messages, within).await
    }
}
