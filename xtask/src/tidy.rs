//! The rules of this workspace that no other tool knows.

mod edges;
mod sources;
mod versions;

use std::path::Path;

use anyhow::{Result, bail};

use crate::steps::Outcome;

pub(crate) fn run(root: &Path) -> Result<Outcome> {
    let packages = edges::packages(root)?;
    let mut faults = edges::check(&packages);
    faults.extend(sources::check(root)?);
    faults.extend(versions::check(root, &packages)?);
    if faults.is_empty() {
        return Ok(Outcome::Passed);
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("{} rules broken; CONTRIBUTING.md explains them", faults.len());
}
