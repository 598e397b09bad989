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
    progress: Progress,
}

impl<'a> Report<'a> {
    pub(super) fn new(checks: Vec<CheckName>, output: &'a Output) -> Self {
        let progress = Progress::new(output, "checked", checks.len() as u64);
        Self { output, checks, early: BTreeMap::new(), next: 0, group: None, grades: Vec::new(), progress }
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

    /// How many have no verdict.
    pub(super) fn missing(&self) -> usize {
        self.checks.len() - self.grades.len()
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
        self.detail.iter().try_for_each(|detail| writeln!(out, "{:18}{}", "", escape(detail)))
    }
}

impl crate::output::Report for Sum {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
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
    fn one_failed_check_is_a_failure() {
        assert_eq!(exit(&[Grade::Passed, Grade::Ignored]), Exit::Ok);
        assert_eq!(exit(&[Grade::Passed, Grade::Failed, Grade::Passed]), Exit::Failure);
    }
}
