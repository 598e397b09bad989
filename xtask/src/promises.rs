//! Whether every promise of PROMISES.md is kept by tests that ran and passed.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{passed, steps::Outcome};

/// How many promises there are of each letter: a row that goes missing is noticed.
const NUMBERS: [(char, u32); 2] = [('S', 23), ('L', 18)];
/// Begins the last cell of a promise whose part of postdate does not exist yet.
const NOT_YET: &str = "not yet: ";

/// A row of a table in PROMISES.md.
#[derive(Debug, PartialEq, Eq)]
struct Promise<'a> {
    number: &'a str,
    tests: Vec<&'a str>,
    not_yet: bool,
}

pub(crate) fn run(root: &Path) -> Result<Outcome> {
    let text = fs::read_to_string(root.join("PROMISES.md")).context("PROMISES.md is missing")?;
    let promises: Vec<Promise<'_>> = text.lines().filter_map(promise).collect();
    let faults = faults(&promises, &passed::read(root)?);
    if !faults.is_empty() {
        bail!("PROMISES.md: {}", faults.join("\n"));
    }
    let tests: BTreeSet<&str> = promises.iter().flat_map(|promise| promise.tests.iter().copied()).collect();
    Ok(Outcome::Note(format!("{} promises, {} tests", promises.len(), tests.len())))
}

fn promise(line: &str) -> Option<Promise<'_>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let (number, last) = (*cells.first()?, *cells.last()?);
    let (letter, digits) = number.split_at_checked(1)?;
    let is_promise = NUMBERS.iter().any(|(known, _)| letter.starts_with(*known));
    if !is_promise || digits.parse::<u32>().is_err() {
        return None;
    }
    let tests = last.split('`').skip(1).step_by(2).collect();
    Some(Promise { number, tests, not_yet: last.starts_with(NOT_YET) })
}

fn faults(promises: &[Promise<'_>], passed: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (letter, count) in NUMBERS {
        for number in (1..=count).map(|number| format!("{letter}{number}")) {
            match promises.iter().filter(|promise| promise.number == number).count() {
                1 => {}
                0 => faults.push(format!("{number} is missing")),
                _ => faults.push(format!("{number} is there twice")),
            }
        }
    }
    for promise in promises {
        if promise.tests.is_empty() != promise.not_yet {
            faults.push(format!("{} names neither its tests nor, alone, why there are none", promise.number));
        }
        for test in promise.tests.iter().filter(|test| !has_passed(passed, test)) {
            faults.push(format!("{}: no test called `{test}` has passed", promise.number));
        }
    }
    faults
}

/// Whether a test of this name, or of a name that ends in it after `::`, is among those.
fn has_passed(passed: &BTreeSet<String>, test: &str) -> bool {
    passed
        .iter()
        .any(|name| name.strip_suffix(test).is_some_and(|before| before.is_empty() || before.ends_with("::")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(first: &'static str) -> Vec<Promise<'static>> {
        let mut lines = vec![first];
        lines.extend((2..=23).map(|n| &*format!("| S{n} | x | `a` |").leak()));
        lines.extend((1..=18).map(|n| &*format!("| L{n} | x | `a` |").leak()));
        lines.into_iter().filter_map(promise).collect()
    }

    fn passed() -> BTreeSet<String> {
        ["a".to_owned(), "sqlite::b".to_owned()].into()
    }

    #[test]
    fn a_row_names_its_tests() {
        let row = promise("| S1 | **No loss.** of `x` | `a`, `b` |");
        assert_eq!(row, Some(Promise { number: "S1", tests: vec!["a", "b"], not_yet: false }));
        assert_eq!(promise("| | promise | tests |"), None);
        assert_eq!(promise("|---|---|---|"), None);
    }

    #[test]
    fn tests_that_passed_keep_a_promise_under_their_short_names() {
        assert_eq!(faults(&complete("| S1 | x | `a`, `b` |"), &passed()), [""; 0]);
        assert_eq!(faults(&complete("| S1 | x | not yet: no sender |"), &passed()), [""; 0]);
    }

    #[test]
    fn a_test_that_did_not_pass_and_a_promise_without_tests_are_faults() {
        let fault = |first| faults(&complete(first), &passed()).join("\n");
        assert_eq!(fault("| S1 | x | `c` |"), "S1: no test called `c` has passed");
        // A part of a name is not the name.
        assert_eq!(fault("| S1 | x | `ite::b` |"), "S1: no test called `ite::b` has passed");
        assert_eq!(fault("| S1 | x | soon |"), "S1 names neither its tests nor, alone, why there are none");
        assert_eq!(fault("| S0 | x | `a` |"), "S1 is missing");
    }
}
