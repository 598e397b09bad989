//! Rounds in which the two contestants of a scenario take turns.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::{
    Options, Report, Row,
    cpu::Measured,
    report::{Round, fsync_time},
    scenarios,
};

/// One task and what it is compared with.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What the first of the pair does.
    pub(crate) ours: &'static str,
    /// What the other one does.
    pub(crate) bound: &'static str,
    pub(crate) prepare: fn(&Ground) -> Result<Pair>,
}

/// The two that are compared.
pub(crate) struct Pair {
    pub(crate) ours: Contestant,
    pub(crate) bound: Contestant,
}

/// Does the task once; every time from the same start.
pub(crate) type Contestant = Box<dyn FnMut(&Ground) -> Result<Measured>>;

/// Where a scenario takes place.
pub(crate) struct Ground {
    pub(crate) runtime: Runtime,
    folder: PathBuf,
    /// All counts are divided by this.
    divisor: usize,
}

impl Ground {
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
    let chosen: Vec<_> = scenarios::ALL.iter().filter(|scenario| options.wants(scenario.name)).collect();
    ensure!(!chosen.is_empty(), "no scenario has such a name; choose among {}", all_names());
    let scratch = tempfile::Builder::new().prefix(".postdate-bench-").tempdir_in(&options.folder);
    let scratch = scratch.with_context(|| format!("cannot write to {}", options.folder.display()))?;
    let rounds = options.rounds.max(1);
    let mut report = Report::new(rounds, divisor, fsync_time(scratch.path())?);
    for scenario in chosen {
        let runtime = Builder::new_multi_thread().enable_all().build()?;
        let ground = Ground { runtime, folder: scratch.path().to_owned(), divisor };
        report.rows.push(measure(scenario, rounds, &ground, progress).context(scenario.name)?);
    }
    Ok(report)
}

fn measure(
    scenario: &Scenario,
    rounds: usize,
    ground: &Ground,
    progress: &mut dyn FnMut(&str),
) -> Result<Row> {
    progress(&format!("{}: preparing", scenario.name));
    let mut pair = (scenario.prepare)(ground)?;
    let mut played = Vec::with_capacity(rounds);
    for number in 0..rounds {
        let round = play(&mut pair, number, ground)?;
        progress(&format!("{}: round {} of {rounds}: {round}", scenario.name, number + 1));
        played.push(round);
    }
    Ok(Row::of(scenario, &played))
}

/// Whoever goes second finds the disk as the first one left it, so they take turns in that too.
fn play(pair: &mut Pair, number: usize, ground: &Ground) -> Result<Round> {
    let (ours, bound);
    if number.is_multiple_of(2) {
        ours = (pair.ours)(ground)?;
        bound = (pair.bound)(ground)?;
    } else {
        bound = (pair.bound)(ground)?;
        ours = (pair.ours)(ground)?;
    }
    Ok(Round { ours, bound })
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
        let report = run_part(&options, 1_000, &mut |_| {}).unwrap();
        assert_eq!(report.rows.len(), scenarios::ALL.len());
        for row in &report.rows {
            assert!(row.ours.rate > 0.0 && row.bound.rate > 0.0 && row.ratio > 0.0, "{row:?}");
            assert_eq!(row.ours.late_p99_ms.is_some(), row.name.starts_with("lateness"), "{row:?}");
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
