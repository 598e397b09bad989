//! The packages beside the workspace, as a stranger would use it: the example store and the fuzz targets.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    cargo::{cargo, expect_success},
    passed,
    steps::Outcome,
};

pub(crate) fn run(root: &Path) -> Result<Outcome> {
    let [example, fuzz] = ["examples/directory-store", "fuzz"].map(|folder| root.join(folder));
    // Not in a folder of their own: most of what they need is built already.
    let target = root.join("target").join("beside");
    for (folder, args) in [
        (&example, &["clippy", "--all-targets", "--locked", "--", "-D", "warnings"][..]),
        (&fuzz, &["clippy", "--locked", "--", "-D", "warnings"]),
    ] {
        let mut lint = cargo(folder);
        lint.args(args).env("CARGO_TARGET_DIR", &target);
        expect_success(&mut lint, &format!("in {}", folder.display()))?;
    }
    let mut tests = cargo(&example);
    tests.args(["test", "--locked"]).env("CARGO_TARGET_DIR", &target).stdout(Stdio::piped());
    let mut running = tests.spawn().context("cargo does not start")?;
    let output = running.stdout.take().context("standard output was piped")?;
    let mut count = 0;
    for line in BufReader::new(output).lines() {
        let line = line?;
        count += usize::from(passed::name(&line).is_some());
        writeln!(std::io::stdout(), "{line}")?;
    }
    if !running.wait()?.success() {
        bail!("the example store fails its tests");
    }
    Ok(Outcome::Note(format!("{count} passed")))
}
