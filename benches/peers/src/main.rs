//! Other people's queues on PostgreSQL, each in the configuration that its documentation says is fastest.
//!
//! `postdate-bench-peers PEER URL TASK`, in an empty database. It makes the peer's tables and what the task begins with,
//! prints `ready`, waits for a line, does the task, and prints what it took as one line of JSON. Then it stays, idle, until its
//! input ends, so that one can see what an idle worker asks of the server.

mod apalis;
mod deliveries;
mod fang;
mod graphile;
mod message;
mod pgmq;
mod task;

use anyhow::{Result, bail};

use message::Message;
use task::Task;

/// A queue of somebody else's.
trait Peer: Clone + Send + Sync + 'static {
    /// Makes its tables.
    fn create(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Hands over what must be stored when it answers: all in one call.
    fn store(&self, messages: Vec<Message>) -> impl Future<Output = Result<()>> + Send;

    /// Starts workers that give everything to [`deliveries::deliver`], and go on when there is nothing to do.
    fn work(&self, workers: usize, aim: Aim) -> impl Future<Output = Result<()>> + Send;

    /// How many messages are due and not removed.
    fn left(&self) -> impl Future<Output = Result<u64>> + Send;
}

/// What workers are configured for.
#[derive(Clone, Copy)]
enum Aim {
    /// To do as much as possible.
    Throughput,
    /// To be as early as possible.
    Promptness,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [peer, url, task @ ..] = &args[..] else {
        bail!("usage: postdate-bench-peers PEER URL ({})", Task::USAGE);
    };
    let task = Task::parse(task)?;
    let outcome = match peer.as_str() {
        "apalis" => task.run::<apalis::Apalis>(url).await?,
        "fang" => task.run::<fang::Fang>(url).await?,
        "graphile" => task.run::<graphile::Graphile>(url).await?,
        "pgmq" => task.run::<pgmq::Pgmq>(url).await?,
        _ => bail!("no peer is called {peer}; there are apalis, fang, graphile and pgmq"),
    };
    println!("{}", serde_json::to_string(&outcome)?);
    task::wait_for_end().await?;
    // Not all workers can be asked to stop.
    std::process::exit(0)
}
