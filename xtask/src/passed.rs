//! The names of the tests that passed in the last run of all of them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// The name in a line such as `test a::b ... ok`.
pub(crate) fn name(line: &str) -> Option<&str> {
    Some(line.strip_prefix("test ")?.strip_suffix("... ok")?.trim())
}

pub(crate) fn write(root: &Path, names: &BTreeSet<String>) -> Result<()> {
    let file = file(root);
    fs::create_dir_all(file.parent().context("the record is in a folder")?)?;
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))
}

pub(crate) fn read(root: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(file(root)).context("no tests were run yet; run `cargo xtask test`")?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn file(root: &Path) -> PathBuf {
    root.join("target").join("passed-tests.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_passed_are_named() {
        assert_eq!(name("test memory::failures_add_up             ... ok"), Some("memory::failures_add_up"));
        assert_eq!(name("test a::b ... FAILED"), None);
        assert_eq!(name("test result: ok. 3 passed"), None);
        assert_eq!(name("test memory::x ... ignored, needs leases"), None);
    }
}
