//! Judging from within a program: verdicts as they come, runs that are stopped, places that are removed.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

use std::{
    collections::BTreeSet,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    thread,
};

use async_trait::async_trait;
use postdate_conformance::{CheckName, Outcome, Stop, Suite, Verdict};
use postdate_core::{
    Backend, Connected, Driver, Memory, Operation, ScratchPlace, StoreError, StoreErrorKind, StoreUrl,
};

const JOBS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2);

/// Stores and queues in memory; a place is there as long as its file in the folder of the URL.
const DRIVER: Driver = Driver {
    name: "filed",
    schemes: &["filed"],
    connect: |_| Box::pin(async { Err(failure("only scratch places are made here")) }),
    scratch: |url, name| Arc::new(Filed { file: Path::new(url.place()).join(name), memory: Memory::new() }),
};

#[derive(Debug)]
struct Filed {
    file: PathBuf,
    memory: Memory,
}

#[async_trait]
impl ScratchPlace for Filed {
    async fn connect(&self) -> Result<Connected, StoreError> {
        fs::write(&self.file, "").map_err(|error| failure(&format!("connecting failed: {error}")))?;
        let queues = Arc::new(self.memory.queues());
        Ok(Connected { backend: Arc::new(self.memory.clone()), queues: Some(queues) })
    }

    async fn remove(&self) -> Result<(), StoreError> {
        fs::remove_file(&self.file).map_err(|error| failure(&error.to_string()))
    }
}

fn failure(detail: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Other, Operation::Connect, "filed", detail.to_owned())
}

fn is_about_browsing(check: &CheckName) -> bool {
    (check.subject, check.group) == ("queues", "browsing")
}

fn judge(suite: &Suite, wanted: impl Fn(&CheckName) -> bool, stop: &Stop) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    suite.judge(wanted, JOBS, stop, |verdict| verdicts.push(verdict));
    verdicts
}

fn beside(folder: &Path) -> Result<Suite, StoreError> {
    let url = StoreUrl::parse(&format!("filed:{}", folder.display())).unwrap();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(Suite::beside(DRIVER, &url))
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// A suite whose places all have to be removed, and those that were.
fn removing(
    open: impl Fn() -> Result<Memory, StoreError> + Send + Sync + 'static,
    removed: Result<(), &'static str>,
) -> (Suite, Arc<Mutex<BTreeSet<String>>>) {
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&names);
    let suite = Suite::new("removing")
        .stores(move |_| {
            let opened = open();
            async move { opened.map(|memory| Arc::new(memory) as Arc<dyn Backend>) }
        })
        .removing(move |place| {
            seen.lock().unwrap().insert(place.name().to_owned());
            async move { removed.map_err(failure) }
        });
    (suite, names)
}

#[test]
fn each_wanted_check_has_one_verdict_and_its_place_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let suite = beside(folder.path()).unwrap();
    assert!(is_empty(folder.path()), "the trial is left behind");
    let verdicts = judge(&suite, is_about_browsing, &Stop::new());
    let names: BTreeSet<_> = verdicts.iter().map(|verdict| verdict.check.name).collect();
    assert_eq!(names, suite.checks().filter(is_about_browsing).map(|check| check.name).collect());
    assert_eq!(names.len(), verdicts.len());
    assert!(verdicts.iter().all(|verdict| verdict.outcome == Outcome::Passed), "{verdicts:?}");
    assert!(is_empty(folder.path()), "places are left behind");
}

#[test]
fn a_place_that_cannot_be_made_is_an_error_before_any_check() {
    let error = beside(Path::new("no/such/folder")).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Other);
}

#[test]
fn the_error_of_connecting_is_told_and_not_that_of_removing_what_was_never_there() {
    let error = beside(Path::new("no/such/folder")).unwrap_err();
    assert!(error.to_string().contains("connecting failed"), "{error}");
}

#[test]
fn what_no_call_brings_about_is_left_to_the_tests_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = beside(folder.path()).unwrap().check("an_unreadable_row_does_not_stop_the_rest");
    let Outcome::Ignored(why) = &outcome else { panic!("{outcome:?}") };
    assert!(why.ends_with(": only the store's own tests can bring that about"), "{why}");
}

#[test]
fn places_are_removed_after_failures_too() {
    let (suite, removed) = removing(|| Err(failure("planted")), Ok(()));
    let outcome = suite.check("a_message_is_not_due_before_its_time");
    assert!(matches!(&outcome, Outcome::Failed(why) if why.contains("planted")), "{outcome:?}");
    assert_eq!(removed.lock().unwrap().len(), 1);
}

#[test]
fn a_place_that_cannot_be_removed_fails_its_check() {
    let (suite, _) = removing(|| Ok(Memory::new()), Err("planted"));
    let outcome = suite.check("the_counts_are_right");
    let Outcome::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("could not be removed") && why.contains("planted"), "{why}");
}

#[test]
fn a_run_that_is_stopped_has_no_verdicts_and_leaves_no_places() {
    let (opened, hears) = mpsc::channel();
    let (entered, removed) = (Arc::new(Mutex::new(BTreeSet::new())), Arc::new(Mutex::new(BTreeSet::new())));
    let suite = {
        let (entered, removed) = (Arc::clone(&entered), Arc::clone(&removed));
        Suite::new("stuck")
            .stores(move |place| {
                entered.lock().unwrap().insert(place.name().to_owned());
                opened.send(()).unwrap();
                std::future::pending::<Result<Arc<dyn Backend>, StoreError>>()
            })
            .removing(move |place| {
                removed.lock().unwrap().insert(place.name().to_owned());
                async { Ok(()) }
            })
    };
    let stop = Stop::new();
    thread::scope(|scope| {
        let judging = scope.spawn(|| judge(&suite, |_| true, &stop));
        for _ in 0..JOBS.get() {
            hears.recv().unwrap();
        }
        stop.stop();
        assert!(judging.join().unwrap().is_empty());
    });
    assert_eq!(*removed.lock().unwrap(), *entered.lock().unwrap());
    assert_eq!(entered.lock().unwrap().len(), JOBS.get(), "no check begins after the stop");
}
