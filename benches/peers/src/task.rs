//! What the benches ask for, and what it took.

use std::{
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use chrono::{TimeDelta, Utc};
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    task::JoinSet,
    time::sleep,
};

use crate::{Aim, Message, Peer, deliveries};

/// So many messages are stored at a time before a drain.
const SEED_BATCH: usize = 2_000;
const AHEAD: TimeDelta = TimeDelta::seconds(1);
/// What has not come so long after the last due time counts as that late.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) enum Task {
    /// Producers store `count` messages, `batch` in each call.
    Store { producers: usize, batch: usize, count: usize, longest: Duration },
    /// Workers deliver what was stored before.
    Drain { workers: usize, due: usize, longest: Duration },
    /// Messages are stored one after the other, a second before they are due.
    Lateness { count: usize, pause: Duration },
}

#[derive(Serialize)]
pub(crate) struct Outcome {
    messages: u64,
    seconds: f64,
    cpu_seconds: f64,
    lateness_ms: Vec<f64>,
}

impl Task {
    pub(crate) const USAGE: &str =
        "store PRODUCERS BATCH COUNT SECONDS | drain WORKERS DUE SECONDS | lateness COUNT PAUSE_MS";

    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match words[..] {
            ["store", producers, batch, count, seconds] => Self::Store {
                producers: number(producers)?,
                batch: number(batch)?,
                count: number(count)?,
                longest: Duration::from_secs(number(seconds)?),
            },
            ["drain", workers, due, seconds] => Self::Drain {
                workers: number(workers)?,
                due: number(due)?,
                longest: Duration::from_secs(number(seconds)?),
            },
            ["lateness", count, pause] => {
                Self::Lateness { count: number(count)?, pause: Duration::from_millis(number(pause)?) }
            }
            _ => bail!("no such task; there are {}", Self::USAGE),
        })
    }

    pub(crate) async fn run<P: Peer>(self, url: &str) -> Result<Outcome> {
        let peer = P::create(url).await?;
        match self {
            Self::Store { producers, batch, count, longest } => {
                store(peer, producers, batch, count, longest).await
            }
            Self::Drain { workers, due, longest } => drain(peer, workers, due as u64, longest).await,
            Self::Lateness { count, pause } => lateness(peer, count, pause).await,
        }
    }
}

async fn store<P: Peer>(
    peer: P,
    producers: usize,
    batch: usize,
    count: usize,
    longest: Duration,
) -> Result<Outcome> {
    let messages: Vec<_> = (0..count).map(|_| Message::overdue()).collect();
    let mut shares = vec![Vec::new(); producers];
    for (call, messages) in messages.chunks(batch).enumerate() {
        shares[call % producers].push(messages.to_vec());
    }
    drop(messages);
    wait_for_start().await?;
    let stopwatch = Stopwatch::start();
    let mut running = JoinSet::new();
    for share in shares {
        let peer = peer.clone();
        running.spawn(async move {
            let mut stored = 0;
            for messages in share {
                stored += messages.len() as u64;
                peer.store(messages).await?;
                if stopwatch.start.elapsed() > longest {
                    break;
                }
            }
            anyhow::Ok(stored)
        });
    }
    let mut stored = 0;
    while let Some(share) = running.join_next().await {
        stored += share??;
    }
    Ok(stopwatch.stop(stored))
}

async fn drain<P: Peer>(peer: P, workers: usize, due: u64, longest: Duration) -> Result<Outcome> {
    let mut missing = due as usize;
    while missing > 0 {
        let batch = missing.min(SEED_BATCH);
        peer.store((0..batch).map(|_| Message::overdue()).collect()).await?;
        missing -= batch;
    }
    wait_for_start().await?;
    let stopwatch = Stopwatch::start();
    peer.work(workers, Aim::Throughput).await?;
    // All must be delivered, and removed.
    while stopwatch.start.elapsed() < longest && (deliveries::count() < due || peer.left().await? > 0) {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(stopwatch.stop(deliveries::count()))
}

async fn lateness<P: Peer>(peer: P, count: usize, pause: Duration) -> Result<Outcome> {
    deliveries::time();
    wait_for_start().await?;
    let stopwatch = Stopwatch::start();
    peer.work(1, Aim::Promptness).await?;
    for number in 0..count {
        sleep((pause * number as u32).saturating_sub(stopwatch.start.elapsed())).await;
        peer.store(vec![Message::due_at(Utc::now() + AHEAD)]).await?;
    }
    let stored = Instant::now();
    while deliveries::count() < count as u64 && stored.elapsed() < PATIENCE {
        sleep(Duration::from_millis(20)).await;
    }
    let outcome = stopwatch.stop(deliveries::count());
    let mut lateness_ms = deliveries::lateness();
    lateness_ms.resize(count, PATIENCE.as_secs_f64() * 1e3);
    Ok(Outcome { lateness_ms, ..outcome })
}

fn number<T: FromStr>(word: &str) -> Result<T> {
    word.parse().ok().with_context(|| format!("{word} is no number"))
}

async fn wait_for_start() -> Result<()> {
    println!("ready");
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    Ok(())
}

pub(crate) async fn wait_for_end() -> Result<()> {
    let mut input = BufReader::new(stdin());
    while input.read_line(&mut String::new()).await? > 0 {}
    Ok(())
}

#[derive(Clone, Copy)]
struct Stopwatch {
    start: Instant,
    cpu: Duration,
}

impl Stopwatch {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: process_cpu() }
    }

    fn stop(self, messages: u64) -> Outcome {
        Outcome {
            messages,
            seconds: self.start.elapsed().as_secs_f64(),
            cpu_seconds: (process_cpu() - self.cpu).as_secs_f64(),
            lateness_ms: Vec::new(),
        }
    }
}

fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
