//! `conformance`: the store judged by the suite, beside what is in it.

mod report;

use std::{num::NonZeroUsize, thread::available_parallelism, time::Instant};

use postdate::StoreUrl;
use postdate_conformance::{CheckName, Stop, Suite, Verdict, all_checks, check_environment};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::spawn_blocking,
};

use crate::{
    cli::{ConformanceArgs, Options},
    exit::{Exit, Failure},
    output::Output,
    signals::Signals,
};
use report::{Listed, Report, counted, path};

/// More at a time would mostly wait for each other, and for the disk.
const JOBS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(3);

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Judged,
    Stopped,
    AtOnce,
}

pub(crate) async fn run(args: &ConformanceArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let known: Vec<_> = all_checks().filter(|check| is_wanted(&args.filters, check)).collect();
    if known.is_empty() {
        let message = format!(
            "no check is called {}; `postdate conformance --list` shows those there are",
            args.filters.join(" or ")
        );
        return Err(Failure::usage(message));
    }
    if args.list {
        output.print_all(&known.iter().map(Listed::from).collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    check_environment().map_err(|error| Failure::usage(error.to_string()))?;
    let url = StoreUrl::parse(&options.store)?;
    let driver = *postdate::driver(&url)?;
    let mut signals = Signals::listen()?;
    let mut making = Box::pin(Suite::beside(driver, &url));
    let suite = tokio::select! {
        made = &mut making => made?,
        () = signals.next() => {
            output.note(STOPPING);
            tokio::select! {
                _ = making => return Err(stopped("no check was made")),
                () = signals.next() => return Err(stopped_at_once(&url)),
            }
        }
    };
    judge(suite.repeated_by("postdate conformance --filter"), args, &url, signals, output).await
}

async fn judge(
    suite: Suite,
    args: &ConformanceArgs,
    url: &StoreUrl,
    mut signals: Signals,
    output: &Output,
) -> Result<Exit, Failure> {
    let checks: Vec<_> = suite.checks().filter(|check| is_wanted(&args.filters, check)).collect();
    if checks.is_empty() {
        return Err(Failure::usage(format!(
            "{url}: has no queues, and only checks for queues were asked for"
        )));
    }
    output.note(&format!(
        "judging {url} by {}, in scratch places beside it that are removed afterwards; Ctrl-C stops",
        counted(checks.len())
    ));
    let (begun, stop, (sender, mut verdicts)) = (Instant::now(), Stop::new(), unbounded_channel());
    let mut report = Report::new(checks, output);
    // The suite brings runtimes of its own, which cannot be started from within this one.
    let judging = spawn_blocking({
        let (filters, jobs, stop) = (args.filters.clone(), jobs(args), stop.clone());
        move || {
            suite.judge(
                |check| is_wanted(&filters, check),
                jobs,
                &stop,
                |verdict| drop(sender.send(verdict)),
            );
        }
    });
    let heard = hear(&mut report, &mut verdicts, &mut signals, &stop, output).await;
    if let Ok(Ended::AtOnce) = heard {
        return Err(stopped_at_once(url));
    }
    // Also when nobody reads the report any more: places that checks are in still are to be removed.
    stop.stop();
    judging
        .await
        .map_err(|error| Failure::new(Exit::Failure, format!("the suite ended half-way: {error}")))?;
    if heard? == Ended::Stopped {
        return Err(stopped(&report.so_far()));
    }
    report.sum(url, begun.elapsed())
}

/// Reports each verdict as it comes.
async fn hear(
    report: &mut Report<'_>,
    verdicts: &mut UnboundedReceiver<Verdict>,
    signals: &mut Signals,
    stop: &Stop,
    output: &Output,
) -> Result<Ended, Failure> {
    let mut ended = Ended::Judged;
    loop {
        tokio::select! {
            verdict = verdicts.recv() => match verdict {
                Some(verdict) => report.add(verdict)?,
                None => return report.flush().map(|()| ended),
            },
            () = signals.next() => {
                if ended == Ended::Stopped {
                    return Ok(Ended::AtOnce);
                }
                ended = Ended::Stopped;
                stop.stop();
                report.aside(|| output.note(STOPPING));
            }
        }
    }
}

const STOPPING: &str = "stopping; what was made is removed, once more stops at once";

fn stopped(found: &str) -> Failure {
    Failure::new(Exit::Failure, format!("stopped; {found}, and nothing is left behind"))
}

fn stopped_at_once(url: &StoreUrl) -> Failure {
    let message = format!("stopped at once; remove what has `scratch` in its name beside {url}");
    Failure::new(Exit::Failure, message)
}

/// People may write the sentence as they would say it.
fn is_wanted(filters: &[String], check: &CheckName) -> bool {
    let name = format!("{}/{}", path(check), check.name);
    filters.is_empty() || filters.iter().any(|text| name.contains(&text.replace(' ', "_").to_lowercase()))
}

fn jobs(args: &ConformanceArgs) -> NonZeroUsize {
    args.jobs.unwrap_or_else(|| {
        available_parallelism().map_or(NonZeroUsize::MIN, |processors| processors.min(JOBS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_wanted_by_a_part_of_its_name_or_of_its_group() {
        let wanted = |filters: &[&str]| {
            let filters: Vec<_> = filters.iter().map(|text| (*text).to_owned()).collect();
            all_checks().filter(|check| is_wanted(&filters, check)).count()
        };
        let all = wanted(&[]);
        assert_eq!(wanted(&["queues/"]) + wanted(&["stores/"]), all);
        assert_eq!(wanted(&["Browsing takes nothing"]), 1);
        assert_eq!(wanted(&["browsing_takes_nothing", "deliveries_are_counted", "nonsense"]), 2);
        assert_eq!(wanted(&["nonsense"]), 0);
    }
}
