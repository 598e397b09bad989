//! Rounds in which the contestants of a scenario take turns.

use std::path::PathBuf;
#[cfg(feature = "postgres")]
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

#[cfg(feature = "postgres")]
use crate::postgres::Arena;
use crate::{
    Options, Report, Row,
    cpu::Measured,
    report::{Round, fsync_time},
    scenarios,
};

/// One task and what it is compared with.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What postdate does.
    pub(crate) ours: &'static str,
    /// What it is compared with does.
    pub(crate) bound: &'static str,
    pub(crate) prepare: fn(&Ground) -> Result<Entrants>,
}

/// All who do the task.
pub(crate) struct Entrants {
    pub(crate) ours: Contestant,
    pub(crate) bound: Contestant,
    /// Other people's queues, by name.
    pub(crate) peers: Vec<(&'static str, Contestant)>,
}

impl Entrants {
    pub(crate) fn pair(ours: Contestant, bound: Contestant) -> Self {
        Self { ours, bound, peers: Vec::new() }
    }
}

/// Does the task once; every time from the same start.
pub(crate) type Contestant = Box<dyn FnMut(&Ground) -> Result<Measured>>;

/// Where a scenario takes place.
pub(crate) struct Ground {
    pub(crate) runtime: Runtime,
    folder: PathBuf,
    /// All counts are divided by this.
    divisor: usize,
    #[cfg(feature = "postgres")]
    arena: Option<Arc<Arena>>,
}

impl Ground {
    #[cfg(feature = "postgres")]
    pub(crate) fn arena(&self) -> Result<&Arena> {
        self.arena.as_deref().context("it needs a PostgreSQL server; give its URL")
    }

    /// A folder with nothing in it, gone when it is dropped.
    pub(crate) fn empty_folder(&self) -> Result<TempDir> {
        tempfile::tempdir_in(&self.folder)
            .with_context(|| format!("cannot write to {}", self.folder.display()))
    }

    /// `count`, or less in a run that is to be quick.
    pub(crate) fn scaled(&self, count: usize) -> usize {
        (count / self.divisor).max(1)
    }
}

pub(crate) fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    run_part(options, if options.quick { 10 } else { 1 }, progress)
}

fn run_part(options: &Options, divisor: usize, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let chosen = chosen(options)?;
    let scratch = tempfile::Builder::new().prefix(".postdate-bench-").tempdir_in(&options.folder);
    let scratch = scratch.with_context(|| format!("cannot write to {}", options.folder.display()))?;
    let rounds = options.rounds.max(1);
    let mut report = Report::new(rounds, divisor, fsync_time(scratch.path())?);
    #[cfg(feature = "postgres")]
    let arena = Arena::of(options)?;
    for scenario in chosen {
        let ground = Ground {
            runtime: Builder::new_multi_thread().enable_all().build()?,
            folder: scratch.path().to_owned(),
            divisor,
            #[cfg(feature = "postgres")]
            arena: arena.clone(),
        };
        let row = measure(scenario, rounds, &ground, progress).context(scenario.name);
        #[cfg(feature = "postgres")]
        let swept = arena.as_ref().map_or(Ok(()), |arena| ground.runtime.block_on(arena.sweep()));
        report.rows.push(row?);
        #[cfg(feature = "postgres")]
        swept?;
    }
    Ok(report)
}

fn chosen(options: &Options) -> Result<Vec<&'static Scenario>> {
    let among = |scenarios: &'static [Scenario]| {
        let wanted = scenarios.iter().filter(|scenario| options.wants(scenario.name));
        wanted.collect::<Vec<_>>()
    };
    let (chosen, on_postgres) = (among(scenarios::SQLITE), among(scenarios::POSTGRES));
    ensure!(
        chosen.len() + on_postgres.len() > 0,
        "no scenario has such a name; choose among {}",
        all_names()
    );
    #[cfg(feature = "postgres")]
    let chosen = if options.postgres.is_some() { [chosen, on_postgres.clone()].concat() } else { chosen };
    ensure!(!chosen.is_empty(), "{} needs a PostgreSQL server; give its URL", on_postgres[0].name);
    Ok(chosen)
}

fn measure(
    scenario: &Scenario,
    rounds: usize,
    ground: &Ground,
    progress: &mut dyn FnMut(&str),
) -> Result<Row> {
    progress(&format!("{}: preparing", scenario.name));
    let Entrants { ours, bound, peers } = (scenario.prepare)(ground)?;
    let (peers, contestants): (Vec<_>, Vec<_>) = peers.into_iter().unzip();
    let mut contestants: Vec<_> = [ours, bound].into_iter().chain(contestants).collect();
    let mut played = Vec::with_capacity(rounds);
    for number in 0..rounds {
        let round = play(&mut contestants, number, ground)?;
        let rates: Vec<_> = round.iter().map(|measured| format!("{:.0}", measured.rate())).collect();
        let rates = rates.join(", ");
        progress(&format!("{}: round {} of {rounds}: {rates} a second", scenario.name, number + 1));
        played.push(round);
    }
    Ok(Row::of(scenario, &peers, &played))
}

/// Another one begins in each round: who comes later finds the disk as the others left it.
fn play(contestants: &mut [Contestant], number: usize, ground: &Ground) -> Result<Round> {
    let first = number % contestants.len();
    let (head, tail) = contestants.split_at_mut(first);
    let turns = tail.iter_mut().chain(head).map(|contestant| contestant(ground));
    let mut round = turns.collect::<Result<Round>>()?;
    round.rotate_right(first);
    Ok(round)
}

fn all_names() -> String {
    crate::names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new().quick();
        options.folder = folder.path().to_owned();
        #[cfg(feature = "postgres")]
        let server = crate::postgres::tests::server();
        #[cfg(feature = "postgres")]
        options.postgres.replace(server.url());
        let report = run_part(&options, 1_000, &mut |_| {}).unwrap();
        assert_eq!(report.rows.len(), crate::names().count());
        let table = report.to_string();
        assert!(table.lines().all(|line| line.chars().count() <= 110), "{table}");
        for row in &report.rows {
            assert!(row.ours.rate > 0.0 && row.bound.rate > 0.0 && row.bound.ratio > 0.0, "{row:?}");
            assert_eq!(row.ours.late_p99_ms.is_some(), row.name.contains("lateness/"), "{row:?}");
            assert_eq!(row.ours.wal_bytes.is_some(), row.name.starts_with("postgres/"), "{row:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let options = Options { names: vec!["no-such".into()], ..Options::new() };
        let error = run(&options, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("drain/no-op"), "{error}");
    }
}
