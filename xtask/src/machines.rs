//! The machines that try to break postdate, for as long as one likes. `cargo xtask test` runs each of them briefly.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};

use crate::cargo::{cargo, expect_success};

/// A machine: its name, what the number after it means, and how it is run.
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    default: u64,
    run: fn(&Path, u64) -> Result<()>,
}

pub(crate) const ALL: [Machine; 6] = [
    Machine {
        name: "simulate",
        help: "so many fresh seeds of whole systems under faults (100000)",
        default: 100_000,
        run: simulate,
    },
    Machine {
        name: "histories",
        help: "so many random histories of every store and queue (5000)",
        default: 5_000,
        run: histories,
    },
    Machine {
        name: "crash",
        help: "so many images of a disk after a power loss (20000), every failing call, 20 kills",
        default: 20_000,
        run: crash,
    },
    Machine {
        name: "power-loss",
        help: "so many rounds of a file system that stops under the store (10); needs root",
        default: 10,
        run: power_loss,
    },
    Machine {
        name: "fuzz",
        help: "so many seconds for each decoder and parser (60); needs cargo-fuzz",
        default: 60,
        run: fuzz,
    },
    Machine {
        name: "mutants",
        help: "so many shards, of 8, of all mutants of the engines (8); needs cargo-mutants",
        default: 8,
        run: mutants,
    },
];

impl Machine {
    pub(crate) fn run(&self, root: &Path, args: &[String]) -> Result<()> {
        let number = match args {
            [] => self.default,
            [number] => number.parse().with_context(|| format!("`{number}` is no number"))?,
            _ => bail!("`cargo xtask {}` takes one number: {}", self.name, self.help),
        };
        (self.run)(root, number)
    }
}

fn simulate(root: &Path, seeds: u64) -> Result<()> {
    let mut command = test(root, "postdate-core", &["--release", "--test", "simulation", "fresh_seeds"]);
    carry_out(command.env("POSTDATE_SEEDS", seeds.to_string()))
}

fn histories(root: &Path, histories: u64) -> Result<()> {
    for (package, suite) in [("postdate-conformance", "memory"), ("postdate-sqlite", "conformance")] {
        let mut command = test(root, package, &["--release", "--test", suite, "histor"]);
        carry_out(command.env("POSTDATE_HISTORIES", histories.to_string()))?;
    }
    Ok(())
}

fn crash(root: &Path, images: u64) -> Result<()> {
    let mut command = test(root, "crash-tests", &["--release"]);
    carry_out(command.env("POSTDATE_IMAGES", images.to_string()))?;
    let mut command = test(root, "integration-tests", &["--release", "exactly_once"]);
    carry_out(command.env("POSTDATE_FULL", "1"))
}

fn power_loss(root: &Path, rounds: u64) -> Result<()> {
    let mut command = cargo(root);
    command.args(["run", "--release", "--package", "crash-tests", "--bin", "power-loss", "--"]);
    carry_out(command.arg(rounds.to_string()))
}

fn mutants(root: &Path, shards: u64) -> Result<()> {
    for shard in 0..shards {
        let mut command = cargo(root);
        command.args(["mutants", "--package", "postdate-core", "--shard", &format!("{shard}/8")]);
        for engine in ["machine/**", "engine/**", "poller*", "poller/**", "pump*", "pump/**", "delivery*", "delivery/**"] {
            command.args(["--file", &format!("crates/postdate-core/src/{engine}")]);
        }
        carry_out(command.args(["--", "--lib", "--test", "delivery", "--test", "simulation"]))?;
    }
    Ok(())
}

fn test(root: &Path, package: &str, args: &[&str]) -> Command {
    let mut command = cargo(root);
    command.args(["test", "--package", package]).args(args).args(["--", "--nocapture"]);
    command
}

fn carry_out(command: &mut Command) -> Result<()> {
    expect_success(command, "what it found is above, with the command that repeats it").map(drop)
}
