//! What is said about each check, in the order of the suite, and about all.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    time::Duration,
};

use clap::builder::styling::AnsiColor;
use postdate::StoreUrl;
use postdate_conformance::{CheckName, Outcome, Verdict};
use serde::Serialize;

use crate::{
    exit::{Exit, Failure},
    output::{Format, Output, colour::Palette, escape::escape, progress::Progress},
};

/// A check, for the list.
#[derive(Serialize)]
pub(super) struct Listed {
    subject: &'static str,
    group: &'static str,
    check: &'static str,
}

/// What came of a check.
#[derive(Serialize)]
struct Judged {
    #[serde(flatten)]
    check: Listed,
    result: Grade,
    detail: Option<String>,
    millis: u64,
    #[serde(skip)]
    palette: Palette,
    /// Whether it is the first of its group that is shown.
    #[serde(skip)]
    opens: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Grade {
    Passed,
    Ignored,
    Failed,
}

/// How many came to what.
#[derive(Serialize)]
struct Sum {
    store: String,
    passed: usize,
    ignored: usize,
    failed: usize,
    millis: u64,
    /// The names of those that failed.
    #[serde(skip)]
    failures: Vec<String>,
    #[serde(skip)]
    palette: Palette,
}

/// The report as it grows. Verdicts come as checks end; people read them group by group.
pub(super) struct Report<'a> {
    output: &'a Output,
    checks: Vec<CheckName>,
    early: BTreeMap<usize, Verdict>,
    /// The check that is shown next.
    next: usize,
    /// The group that was shown last.
    group: Option<String>,
    grades: Vec<Grade>,
    failures: Vec<String>,
    progress: Progress,
}

impl<'a> Report<'a> {
    pub(super) fn new(checks: Vec<CheckName>, output: &'a Output) -> Self {
        let progress = Progress::new(output, "checked", checks.len() as u64);
        let (early, grades, failures) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { output, checks, early, next: 0, group: None, grades, failures, progress }
    }

    pub(super) fn add(&mut self, verdict: Verdict) -> Result<(), Failure> {
        self.progress.advance(1);
        if self.output.format() == Format::Json {
            return self.show(verdict);
        }
        let at = self.checks.iter().position(|check| *check == verdict.check).unwrap_or(self.checks.len());
        self.early.insert(at, verdict);
        while let Some(verdict) = self.early.remove(&self.next) {
            self.next += 1;
            self.show(verdict)?;
        }
        Ok(())
    }

    /// Shows what came before its turn, where some have no verdict.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        while let Some((_, verdict)) = self.early.pop_first() {
            self.show(verdict)?;
        }
        Ok(())
    }

    /// What a run that was stopped has found.
    pub(super) fn so_far(&self) -> String {
        let (made, missing) = (self.grades.len(), self.checks.len() - self.grades.len());
        let (made_were, missing_were) = (were(made), were(missing));
        format!(
            "{} {made_were} made, {} of them failed; {missing} {missing_were} not",
            counted(made),
            self.failures.len()
        )
    }

    pub(super) fn aside(&self, write: impl FnOnce()) {
        self.progress.aside(write);
    }

    /// The last line.
    pub(super) fn sum(self, url: &StoreUrl, took: Duration) -> Result<Exit, Failure> {
        let count = |grade| self.grades.iter().filter(|one| **one == grade).count();
        let sum = Sum {
            store: url.to_string(),
            passed: count(Grade::Passed),
            ignored: count(Grade::Ignored),
            failed: count(Grade::Failed),
            millis: millis(took),
            failures: self.failures,
            palette: self.output.palette(),
        };
        let exit = exit(&self.grades);
        drop(self.progress);
        self.output.print(&sum)?;
        Ok(exit)
    }

    fn show(&mut self, verdict: Verdict) -> Result<(), Failure> {
        let (result, detail) = match verdict.outcome {
            Outcome::Passed => (Grade::Passed, None),
            Outcome::Ignored(missing) => (Grade::Ignored, Some(missing)),
            Outcome::Failed(why) => (Grade::Failed, Some(why)),
        };
        let group = path(&verdict.check);
        if result == Grade::Failed {
            self.failures.push(format!("{group}/{}", verdict.check.name));
        }
        let opens = self.group.replace(group.clone()) != Some(group);
        self.grades.push(result);
        let judged = Judged {
            check: Listed::from(&verdict.check),
            result,
            detail,
            millis: millis(verdict.took),
            palette: self.output.palette(),
            opens,
        };
        self.progress.aside(|| self.output.print(&judged))
    }
}

/// Whom a check judges, and what it is about.
pub(super) fn path(check: &CheckName) -> String {
    format!("{}/{}", check.subject, check.group)
}

/// So many checks.
pub(super) fn counted(checks: usize) -> String {
    format!("{checks} check{}", if checks == 1 { "" } else { "s" })
}

fn were(checks: usize) -> &'static str {
    if checks == 1 { "was" } else { "were" }
}

fn exit(grades: &[Grade]) -> Exit {
    if grades.contains(&Grade::Failed) { Exit::Failure } else { Exit::Ok }
}

fn millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

fn rough(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}ms"),
        _ => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
    }
}

impl From<&CheckName> for Listed {
    fn from(check: &CheckName) -> Self {
        Self { subject: check.subject, group: check.group, check: check.name }
    }
}

impl crate::output::Report for Listed {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}/{}/{}", self.subject, self.group, self.check)
    }
}

impl crate::output::Report for Judged {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.opens {
            writeln!(out, "{}/{}", self.check.subject, self.check.group)?;
        }
        let (mark, colour) = match self.result {
            Grade::Passed => ("ok     ", AnsiColor::Green),
            Grade::Ignored => ("ignored", AnsiColor::Yellow),
            Grade::Failed => ("FAILED ", AnsiColor::Red),
        };
        let mark = self.palette.paint(colour, mark);
        let time = if self.result == Grade::Ignored { String::new() } else { rough(self.millis) };
        writeln!(out, "  {mark} {time:>6}  {}", self.check.check)?;
        let mut lines = self.detail.iter().flat_map(|detail| detail.lines());
        lines.try_for_each(|line| writeln!(out, "{:18}{}", "", escape(line)))
    }
}

impl crate::output::Report for Sum {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        if !self.failures.is_empty() {
            writeln!(out, "failed:")?;
        }
        self.failures.iter().try_for_each(|check| writeln!(out, "  {check}"))?;
        let colour = if self.failed == 0 { AnsiColor::Green } else { AnsiColor::Red };
        let (passed, failed) = (self.passed, self.palette.paint(colour, &format!("{} failed", self.failed)));
        let (ignored, time) = (self.ignored, rough(self.millis));
        writeln!(out, "{}  {passed} passed, {ignored} ignored, {failed} in {time}", escape(&self.store))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Report as _;

    fn judged(result: Grade, detail: Option<&str>) -> String {
        let check = Listed { subject: "queues", group: "sending", check: "a_message_arrives" };
        let (detail, palette) = (detail.map(str::to_owned), Palette::Plain);
        let mut out = Vec::new();
        Judged { check, result, detail, millis: 1_234, palette, opens: result == Grade::Passed }
            .human(&mut out)
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_check_is_shown_with_its_time_and_with_what_is_to_be_said_about_it() {
        assert_eq!(judged(Grade::Passed, None), "queues/sending\n  ok        1.2s  a_message_arrives\n");
        assert_eq!(
            judged(Grade::Ignored, Some("needs leases")),
            "  ignored         a_message_arrives\n                  needs leases\n"
        );
        let failed = judged(Grade::Failed, Some("it is \u{1b}[2J"));
        assert!(failed.starts_with("  FAILED    1.2s") && failed.contains("it is \\u{1b}[2J"), "{failed}");
    }

    #[test]
    fn each_line_of_a_history_is_a_line_of_its_own() {
        let failed = judged(Grade::Failed, Some("step 2\n  1. store\n  2. \u{1b}[2J"));
        let (_, detail) = failed.split_once("a_message_arrives\n").unwrap();
        let indent = " ".repeat(18);
        assert_eq!(detail, format!("{indent}step 2\n{indent}  1. store\n{indent}  2. \\u{{1b}}[2J\n"));
    }

    #[test]
    fn what_failed_is_said_once_more_before_the_sum() {
        let store = "sqlite:x.db".to_owned();
        let failures = vec!["queues/sending/a_message_arrives".to_owned()];
        let sum =
            Sum { store, passed: 3, ignored: 2, failed: 1, millis: 9, failures, palette: Palette::Plain };
        let mut out = Vec::new();
        sum.human(&mut out).unwrap();
        let expected = "failed:\n  queues/sending/a_message_arrives\n\
                        sqlite:x.db  3 passed, 2 ignored, 1 failed in 9ms\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_run_that_is_stopped_tells_what_it_has_found() {
        let output = Output::new(Format::Json, crate::output::Words::Quiet);
        let checks: Vec<_> = postdate_conformance::all_checks().take(5).collect();
        let mut report = Report::new(checks, &output);
        report.grades = vec![Grade::Passed, Grade::Failed, Grade::Ignored];
        report.failures = vec!["x".to_owned()];
        assert_eq!(report.so_far(), "3 checks were made, 1 of them failed; 2 were not");
        report.grades.push(Grade::Passed);
        assert_eq!(report.so_far(), "4 checks were made, 1 of them failed; 1 was not");
    }

    #[test]
    fn one_failed_check_is_a_failure() {
        assert_eq!(exit(&[Grade::Passed, Grade::Ignored]), Exit::Ok);
        assert_eq!(exit(&[Grade::Passed, Grade::Failed, Grade::Passed]), Exit::Failure);
    }
}
