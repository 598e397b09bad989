//! Judging from within a program, with a report of one's own.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{Outcome, Suite, checks, harness::Check, queue_checks};

/// A check and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckName {
    /// Whom it judges: `stores` or `queues`.
    pub subject: &'static str,
    /// What it is about: `claims`, say.
    pub group: &'static str,
    /// Its sentence, with underscores.
    pub name: &'static str,
}

/// What a check has found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verdict {
    /// The check.
    pub check: CheckName,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// Ends a run early, from another thread. Clones are about the same run.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// One that nobody has asked for yet.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Ends the checks that are running, without a verdict; their places are removed. No others begin.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn asked(&self) {
        // An error would mean that the sender is gone, and the sender is in `self`.
        drop(self.0.subscribe().wait_for(|asked| *asked).await);
    }

    fn is_asked(&self) -> bool {
        *self.0.borrow()
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

/// All checks there are, in the order in which they make sense.
pub fn all_checks() -> impl Iterator<Item = CheckName> {
    checks::all().chain(queue_checks::all()).map(Check::title)
}

impl Suite {
    /// The checks of this suite.
    pub fn checks(&self) -> impl Iterator<Item = CheckName> {
        self.all().map(Check::title)
    }

    /// Judges by those checks of this suite that are wanted, so many at a time, and tells of each when it is done.
    ///
    /// Blocks, and brings runtimes of its own: must not be called within one.
    pub fn judge(
        &self,
        wanted: impl Fn(&CheckName) -> bool,
        jobs: NonZeroUsize,
        stop: &Stop,
        mut told: impl FnMut(Verdict),
    ) {
        let checks: Vec<_> = self.all().filter(|check| wanted(&check.title())).collect();
        let (next, (verdicts, heard)) = (AtomicUsize::new(0), mpsc::channel());
        thread::scope(|scope| {
            for _ in 0..jobs.get().min(checks.len()) {
                let (checks, next, verdicts) = (&checks, &next, verdicts.clone());
                scope.spawn(move || {
                    while let Some(check) = checks.get(next.fetch_add(1, Ordering::Relaxed))
                        && !stop.is_asked()
                    {
                        let begun = Instant::now();
                        let Some(outcome) = self.judge_by(check, stop) else { break };
                        let verdict = Verdict { check: check.title(), outcome, took: begun.elapsed() };
                        if verdicts.send(verdict).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(verdicts);
            heard.iter().for_each(&mut told);
        });
    }
}

impl Check {
    /// Its name and that of its file.
    fn title(&self) -> CheckName {
        const FOLDERS: [&str; 3] = ["checks", "queue_checks", "queues"];
        let is_for_queues = self.module.split("::").any(|part| matches!(part, "queue_checks" | "queues"));
        let subject = if is_for_queues { "queues" } else { "stores" };
        let group = self.module.rsplit("::").find(|part| !FOLDERS.contains(part)).unwrap_or_default();
        CheckName { subject, group, name: self.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_called_after_its_file() {
        let title = |name: &str| all_checks().find(|check| check.name == name).unwrap();
        let sent = title("the_same_message_sent_twice_arrives_twice");
        assert_eq!((sent.subject, sent.group), ("queues", "sending"));
        let due = title("a_message_is_not_due_before_its_time");
        assert_eq!((due.subject, due.group), ("stores", "time"));
        for subject in ["stores", "queues"] {
            assert!(all_checks().any(|check| (check.subject, check.group) == (subject, "histories")));
        }
    }
}
