//! The machines that try to break postdate, for as long as one likes; `cargo xtask test` runs most of them briefly.

use std::{fs, path::Path, process::Command};

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
        help: "so many random histories of every store and queue (5000), and a backlog of 100,000",
        default: 5_000,
        run: histories,
    },
    Machine {
        name: "crash",
        help: "so many times the usual images of disks and failing calls (30), and 20 kills",
        default: 30,
        run: crash,
    },
    Machine {
        name: "power-loss",
        help: "so many rounds of a file system that stops under each store (30); needs root",
        default: 30,
        run: power_loss,
    },
    Machine {
        name: "fuzz",
        help: "so many seconds for each decoder and parser (60); needs nightly and cargo-fuzz",
        default: 60,
        run: fuzz,
    },
    Machine {
        name: "mutants",
        help: "so many of the 8 parts of all mutants of the engines (8); needs cargo-mutants",
        default: 8,
        run: mutants,
    },
];

/// Where the engines are.
const ENGINES: [&str; 10] = [
    "machine/**",
    "engine/**",
    "engine.rs",
    "poller/**",
    "poller.rs",
    "pump/**",
    "pump.rs",
    "delivery/**",
    "delivery.rs",
    "error_queue.rs",
];

/// A line for each.
pub(crate) fn help() -> String {
    ALL.iter().map(|machine| format!("  {:<14} {}\n", machine.name, machine.help)).collect()
}

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
        for filter in ["histor", "backlog"] {
            let mut command = test(root, package, &["--release", "--test", suite, filter]);
            command.env("POSTDATE_HISTORIES", histories.to_string()).env("POSTDATE_LARGE", "100000");
            carry_out(&mut command)?;
        }
    }
    Ok(())
}

fn crash(root: &Path, factor: u64) -> Result<()> {
    let mut command = test(root, "crash-tests", &["--release"]);
    carry_out(command.env("POSTDATE_CRASH_FACTOR", factor.to_string()))?;
    let mut command = test(root, "integration-tests", &["--release", "exactly_once"]);
    carry_out(command.env("POSTDATE_FULL", "1"))
}

fn power_loss(root: &Path, rounds: u64) -> Result<()> {
    let mut command = cargo(root);
    command.args(["run", "--release", "--package", "crash-tests", "--bin", "power-loss", "--", "--rounds"]);
    carry_out(command.arg(rounds.to_string()))
}

fn fuzz(root: &Path, seconds: u64) -> Result<()> {
    for target in fuzz_targets(root)? {
        let corpus = format!("corpus/{target}");
        fs::create_dir_all(root.join("fuzz").join(&corpus))?;
        // Not the cargo that runs this: libFuzzer needs another toolchain.
        let mut command = Command::new("cargo");
        command.current_dir(root.join("fuzz")).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        command.args(["+nightly", "fuzz", "run", "--sanitizer", "none", "--fuzz-dir", ".", &target, &corpus]);
        command.args([&format!("seeds/{target}"), "--", &format!("-max_total_time={seconds}")]);
        carry_out(&mut command)?;
    }
    Ok(())
}

fn fuzz_targets(root: &Path) -> Result<Vec<String>> {
    let mut metadata = cargo(&root.join("fuzz"));
    let output = metadata.args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)))?;
    let targets = metadata["packages"][0]["targets"].as_array().into_iter().flatten();
    let binaries = targets.filter(|target| target["kind"][0] == "bin");
    Ok(binaries.filter_map(|target| target["name"].as_str().map(str::to_owned)).collect())
}

fn mutants(root: &Path, parts: u64) -> Result<()> {
    for part in 0..parts.min(8) {
        let mut command = cargo(root);
        command.args([
            "mutants",
            "--in-place",
            "--package",
            "postdate-core",
            "--shard",
            &format!("{part}/8"),
        ]);
        for engine in ENGINES {
            command.args(["--file", &format!("crates/postdate-core/src/{engine}")]);
        }
        command.args(["--", "--lib", "--test", "delivery", "--test", "simulation"]);
        carry_out(&mut command)?;
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
