//! Medians, and how they are shown.

use std::{
    fmt,
    fs::File,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::Serialize;

use crate::{contest::Scenario, cpu::Measured};

/// What was measured. `Display` shows it as a table, and serialising gives the same figures.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// How often each pair was measured.
    pub rounds: usize,
    /// The counts that the scenarios name were divided by this: 1, or 10 in a quick run.
    pub divisor: usize,
    /// What writing 4 KiB and waiting for the disk took at the beginning, in microseconds, as a median.
    pub fsync_micros: f64,
    /// One for each scenario.
    pub rows: Vec<Row>,
}

/// A task as all did it: medians over all rounds.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The scenario's name.
    pub name: &'static str,
    /// How postdate did it.
    pub ours: Side,
    /// How what it is compared with did it.
    pub bound: Side,
    /// How other people's queues did it.
    pub peers: Vec<Side>,
}

/// One of those in a row.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Side {
    /// What it does.
    pub what: &'static str,
    /// Messages per second.
    pub rate: f64,
    /// The rate of ours by this one: the median of the ratios of all rounds.
    pub ratio: f64,
    /// Processor time per message in microseconds, of the process and of the server; none where the system does not
    /// say.
    pub cpu_micros: Option<f64>,
    /// The server's part of it, where there is one.
    pub server_cpu_micros: Option<f64>,
    /// What the server wrote to its log per message.
    pub wal_bytes: Option<f64>,
    /// How late half of the messages were at most, in milliseconds, where that was the question.
    pub late_p50_ms: Option<f64>,
    /// How late 99 of 100 were at most, in milliseconds.
    pub late_p99_ms: Option<f64>,
    /// How many queries a second it asked while there was nothing to do, where that was the question.
    pub idle_queries: Option<f64>,
}

impl Report {
    pub(crate) fn new(rounds: usize, divisor: usize, fsync: Duration) -> Self {
        Self { rounds, divisor, fsync_micros: fsync.as_secs_f64() * 1e6, rows: Vec::new() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "medians over {} round(s); ratio: postdate's rate by that one's; a bare fdatasync took {:.0} µs",
            self.rounds, self.fsync_micros
        )?;
        if self.divisor > 1 {
            writeln!(f, "quick: all counts divided by {}; do not quote these figures", self.divisor)?;
        }
        let (a_server, peers) = (|row: &Row| row.ours.wal_bytes.is_some(), |row: &Row| !row.peers.is_empty());
        if self.rows.iter().any(a_server) && !self.rows.iter().any(peers) {
            writeln!(f, "without other people's queues; `cargo xtask bench --peers` has them take part")?;
        }
        self.rows.iter().try_for_each(|row| write!(f, "\n{row}"))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        match self.ours.late_p50_ms {
            Some(_) => write!(f, "   p50 ms   p99 ms")?,
            None => write!(f, "   msgs/s    ratio")?,
        }
        write!(f, "   µs CPU")?;
        if self.ours.wal_bytes.is_some() {
            write!(f, "   server    WAL B")?;
        }
        if self.ours.idle_queries.is_some() {
            write!(f, "   idle/s")?;
        }
        writeln!(f)?;
        let mut sides = [&self.ours, &self.bound].into_iter().chain(&self.peers);
        sides.try_for_each(|side| writeln!(f, "{side}"))
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.late_p50_ms.zip(self.late_p99_ms) {
            Some((p50, p99)) => write!(f, "{p50:>9.1}{p99:>9.1}")?,
            None => write!(f, "{:>9.0}{:>9.2}", self.rate, self.ratio)?,
        }
        match self.cpu_micros {
            Some(cpu) => write!(f, "{cpu:>9.1}")?,
            None => write!(f, "{:>9}", "?")?,
        }
        if let Some(wal) = self.wal_bytes {
            match self.server_cpu_micros {
                Some(cpu) => write!(f, "{cpu:>9.1}")?,
                None => write!(f, "{:>9}", "?")?,
            }
            write!(f, "{wal:>9.0}")?;
        }
        if let Some(queries) = self.idle_queries {
            write!(f, "{queries:>9.1}")?;
        }
        write!(f, "  {}", self.what)
    }
}

/// What all did in one round, postdate first and the bound next.
pub(crate) type Round = Vec<Measured>;

impl Row {
    pub(crate) fn of(scenario: &Scenario, peers: &[&'static str], rounds: &[Round]) -> Self {
        let side = |what, index| Side::of(what, index, rounds);
        Self {
            name: scenario.name,
            ours: side(scenario.ours, 0),
            bound: side(scenario.bound, 1),
            peers: peers.iter().enumerate().map(|(number, peer)| side(peer, 2 + number)).collect(),
        }
    }
}

impl Side {
    fn of(what: &'static str, index: usize, rounds: &[Round]) -> Self {
        let mine = || rounds.iter().map(|round| &round[index]);
        let late = |part: f64| {
            let all = mine().flat_map(|measured| &measured.lateness);
            quantile(all.map(|late| late.as_secs_f64() * 1e3), part)
        };
        Self {
            what,
            rate: median(mine().map(Measured::rate)).unwrap_or(f64::NAN),
            ratio: median(rounds.iter().map(|round| round[0].rate() / round[index].rate()))
                .unwrap_or(f64::NAN),
            cpu_micros: median(mine().filter_map(Measured::cpu_micros)),
            server_cpu_micros: median(mine().filter_map(Measured::server_cpu_micros)),
            wal_bytes: median(mine().filter_map(Measured::wal_bytes)),
            late_p50_ms: late(0.5),
            late_p99_ms: late(0.99),
            idle_queries: median(mine().filter_map(|measured| measured.idle_queries)),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(values, 0.5)
}

/// The smallest value that is not less than `part` of all.
fn quantile(values: impl Iterator<Item = f64>, part: f64) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let below = values.iter().enumerate().find(|(i, _)| (i + 1) as f64 >= part * values.len() as f64);
    below.map(|(_, value)| *value)
}

/// What the disk takes for a durable write of 4 KiB when nobody else writes.
pub(crate) fn fsync_time(folder: &Path) -> Result<Duration> {
    let path = folder.join("fsync");
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..51 {
        file.write_all(&[7; 4_096])?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed());
    }
    std::fs::remove_file(path)?;
    times.sort();
    Ok(times[times.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let hundred = || (1..=100).map(f64::from);
        assert_eq!(quantile(hundred(), 0.5), Some(50.0));
        assert_eq!(quantile(hundred(), 0.99), Some(99.0));
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn the_ratio_is_taken_within_a_round() {
        let measured =
            |messages| Measured::new(messages, Duration::from_secs(1), Some(Duration::from_millis(2)));
        // The disk was ten times slower in the second round, for all.
        let rounds =
            [[900, 1_000, 450], [90, 100, 45], [1_000, 1_000, 500]].map(|round| round.map(measured).to_vec());
        let scenario =
            Scenario { name: "store", ours: "ours", bound: "bound", prepare: |_| anyhow::bail!("unused") };
        let row = Row::of(&scenario, &["peer"], &rounds);
        assert_eq!((row.ours.ratio, row.bound.ratio, row.peers[0].ratio), (1.0, 0.9, 2.0));
        assert_eq!((row.ours.rate, row.bound.rate, row.peers[0].rate), (900.0, 1_000.0, 450.0));
        assert_eq!(row.ours.late_p50_ms, None);
    }
}
