//! What cargo and its companions check.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{passed, postgres::ForTests, steps::Outcome};

pub(crate) fn format(root: &Path) -> Result<Outcome> {
    expect_success(cargo(root).args(["fmt", "--all", "--check"]), "run `cargo xtask fix`")
}

pub(crate) fn lint(root: &Path) -> Result<Outcome> {
    let mut clippy = cargo(root);
    clippy.args(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]);
    expect_success(&mut clippy, "see the warnings above; `cargo xtask fix` mends some")
}

pub(crate) fn test(root: &Path) -> Result<Outcome> {
    let postgres = ForTests::find()?;
    let mut tests = cargo(root);
    tests.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    postgres.tell(&mut tests);
    let mut running = tests.stdout(Stdio::piped()).spawn().context("cargo does not start")?;
    let output = running.stdout.take().context("standard output was piped")?;
    let mut totals = Totals::default();
    let mut names = BTreeSet::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        totals.add(&line);
        names.extend(passed::name(&line).map(str::to_owned));
        writeln!(std::io::stdout(), "{line}")?;
    }
    let status = running.wait()?;
    passed::write(root, &names)?;
    if !status.success() {
        bail!("{totals}");
    }
    Ok(Outcome::Note(totals.to_string()))
}

pub(crate) fn docs(root: &Path) -> Result<Outcome> {
    let mut doc = cargo(root);
    doc.args(["doc", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    expect_success(&mut doc, "mend the doc comments named above")
}

/// Advisories are left to CI: their database comes from the network, and changes without a change of ours.
pub(crate) fn deny(root: &Path) -> Result<Outcome> {
    let there = cargo(root).args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        let why = "cargo-deny is not installed; `cargo install --locked cargo-deny` brings it";
        println!("skipped: {why}");
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    let mut deny = cargo(root);
    deny.args(["deny", "check", "bans", "licenses", "sources"]);
    expect_success(&mut deny, "deny.toml says what is allowed")
}

pub(crate) fn fix(root: &Path) -> Result<()> {
    let mut clippy = cargo(root);
    clippy.args(["clippy", "--fix", "--allow-dirty", "--allow-staged"]);
    clippy.args(["--workspace", "--all-targets", "--all-features"]);
    expect_success(&mut clippy, "mend by hand what clippy could not")?;
    expect_success(cargo(root).args(["fmt", "--all"]), "mend what cannot be parsed")?;
    Ok(())
}

pub(crate) fn bench(root: &Path, args: &[String]) -> Result<()> {
    let mut args = args.strip_prefix(&["--".to_owned()]).unwrap_or(args).to_vec();
    if let Some(asked) = args.iter().position(|arg| arg == "--peers") {
        args.insert(asked + 1, build_peers(root)?);
    }
    let mut bench = cargo(root);
    bench.args(["bench", "--package", "postdate-bench", "--features", "postgres", "--"]).args(args);
    expect_success(&mut bench, "`cargo xtask bench --help` shows what it takes")?;
    Ok(())
}

/// The program that the benches start to do their tasks with other people's queues.
fn build_peers(root: &Path) -> Result<String> {
    let workspace = root.join("benches/peers");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let mut build = cargo(&workspace);
    build.args(["build", "--release", "--locked", "--target-dir"]).arg(&target);
    expect_success(&mut build, "leave --peers out to do without them")?;
    let name = format!("postdate-bench-peers{}", std::env::consts::EXE_SUFFIX);
    Ok(target.join("release").join(name).to_string_lossy().into_owned())
}

/// The cargo that runs this, in the workspace's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

pub(crate) fn expect_success(command: &mut Command, advice: &str) -> Result<Outcome> {
    let status = command.status().context("cargo does not start")?;
    if !status.success() {
        let arguments: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!("`cargo {}` failed; {advice}", arguments.join(" "));
    }
    Ok(Outcome::Passed)
}

/// The sums over all test binaries.
#[derive(Default, Debug, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Totals {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; ..`, and nothing for any other.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let count = |word: &str| {
            let before = result.split(word).next().unwrap_or_default();
            before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        self.passed += count(" passed");
        self.failed += count(" failed");
        self.ignored += count(" ignored");
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_binaries_are_summed() {
        let mut totals = Totals::default();
        totals.add("running 5 tests");
        totals.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        totals.add("test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(totals, Totals { passed: 13, failed: 2, ignored: 1 });
        assert_eq!(totals.to_string(), "13 passed, 2 failed, 1 ignored");
    }
}
