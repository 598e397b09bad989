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

/// A task as both did it: medians over all rounds.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The scenario's name.
    pub name: &'static str,
    /// How postdate did it.
    pub ours: Side,
    /// How what it is compared with did it.
    pub bound: Side,
    /// The rate of ours by that of the bound: the median of the ratios of all rounds.
    pub ratio: f64,
}

/// One of the two in a row.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Side {
    /// What it does.
    pub what: &'static str,
    /// Messages per second.
    pub rate: f64,
    /// Processor time per message in microseconds, all threads of the process; none where the system does not
    /// say.
    pub cpu_micros: Option<f64>,
    /// How late half of the messages were at most, in milliseconds, where that was the question.
    pub late_p50_ms: Option<f64>,
    /// How late 99 of 100 were at most, in milliseconds.
    pub late_p99_ms: Option<f64>,
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
            "medians over {} round(s); a bare fdatasync took {:.0} µs",
            self.rounds, self.fsync_micros
        )?;
        if self.divisor > 1 {
            writeln!(f, "quick: all counts divided by {}; do not quote these figures", self.divisor)?;
        }
        for row in &self.rows {
            write!(f, "\n{:<24}", row.name)?;
            match row.ours.late_p50_ms {
                Some(_) => writeln!(f, "p50 ms  p99 ms   µs CPU")?,
                None => writeln!(f, "msgs/s   µs CPU   ratio {:.2}", row.ratio)?,
            }
            writeln!(f, "{}\n{}", row.ours, row.bound)?;
        }
        Ok(())
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.late_p50_ms.zip(self.late_p99_ms) {
            Some((p50, p99)) => write!(f, "  {p50:>26.1} {p99:>7.1}")?,
            None => write!(f, "  {:>28.0}", self.rate)?,
        }
        match self.cpu_micros {
            Some(cpu) => write!(f, " {cpu:>8.1}")?,
            None => write!(f, " {:>8}", "?")?,
        }
        write!(f, "   {}", self.what)
    }
}

/// What both did in one round.
pub(crate) struct Round {
    pub(crate) ours: Measured,
    pub(crate) bound: Measured,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.ours.rate() / self.bound.rate()
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/s beside {:.0}/s", self.ours.rate(), self.bound.rate())
    }
}

impl Row {
    pub(crate) fn of(scenario: &Scenario, rounds: &[Round]) -> Self {
        let sides = |side: fn(&Round) -> &Measured| rounds.iter().map(side).collect::<Vec<_>>();
        Self {
            name: scenario.name,
            ours: Side::of(scenario.ours, &sides(|round| &round.ours)),
            bound: Side::of(scenario.bound, &sides(|round| &round.bound)),
            ratio: median(rounds.iter().map(Round::ratio)).unwrap_or(f64::NAN),
        }
    }
}

impl Side {
    fn of(what: &'static str, rounds: &[&Measured]) -> Self {
        let late = |part: f64| {
            let all = rounds.iter().flat_map(|round| &round.lateness);
            quantile(all.map(|late| late.as_secs_f64() * 1e3), part)
        };
        Self {
            what,
            rate: median(rounds.iter().map(|round| round.rate())).unwrap_or(f64::NAN),
            cpu_micros: median(rounds.iter().filter_map(|round| round.cpu_micros())),
            late_p50_ms: late(0.5),
            late_p99_ms: late(0.99),
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
        let measured = |messages| Measured {
            messages,
            elapsed: Duration::from_secs(1),
            cpu: Some(Duration::from_millis(2)),
            lateness: Vec::new(),
        };
        // The disk was ten times slower in the second round, for both.
        let rounds = [(900, 1_000), (90, 100), (1_000, 1_000)]
            .map(|(ours, bound)| Round { ours: measured(ours), bound: measured(bound) });
        let scenario =
            Scenario { name: "store", ours: "ours", bound: "bound", prepare: |_| anyhow::bail!("unused") };
        let row = Row::of(&scenario, &rounds);
        assert_eq!(row.ratio, 0.9);
        assert_eq!((row.ours.rate, row.bound.rate), (900.0, 1_000.0));
        assert_eq!(row.ours.late_p50_ms, None);
    }
}
