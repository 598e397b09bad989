use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use postdate_core::{StoreErrorKind, SystemClock, wake::Wakes};
use rusqlite::Connection;

use super::{Tx, Work, Writer};
use crate::{
    error::{Fault, Result},
    file::{Dispatching, Shared},
};

/// A writer on a file with a table of numbers.
struct Scene {
    directory: tempfile::TempDir,
    shared: Arc<Shared>,
    writer: Writer,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = wal; PRAGMA synchronous = full; CREATE TABLE number (n, filler)",
            )
            .unwrap();
        let dispatching = Dispatching::new(&path);
        let shared = Arc::new(Shared {
            clock: Arc::new(SystemClock),
            dispatching,
            wakes: Wakes::default(),
            looks: AtomicU64::new(0),
        });
        let writer = Writer::start(connection, Arc::clone(&shared)).unwrap();
        Self { directory, shared, writer }
    }

    /// How many numbers everybody can see.
    fn committed(&self) -> i64 {
        committed(&self.directory.path().join("x.db"))
    }

    async fn execute(&self, sql: &'static str) {
        let run = move |tx: &mut Tx<'_>| Ok(tx.connection.execute_batch(sql)?);
        self.writer.submit(Work::Plain, run).await.unwrap().unwrap();
    }

    /// Keeps the writer thread busy until the answer is sent to or dropped.
    fn occupy(&self) -> mpsc::Sender<()> {
        let (go_on, is_busy) = self.occupy_soon();
        is_busy.recv().unwrap();
        go_on
    }

    /// The same, but does not wait until it is busy.
    fn occupy_soon(&self) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (go_on, wait) = mpsc::channel();
        let (begun, is_busy) = mpsc::channel();
        self.writer.submit_unasked(Work::Plain, move |_| {
            begun.send(()).unwrap();
            // Whether something was sent or the sender was dropped: it is time to go on.
            wait.recv().ok();
            Ok(())
        });
        (go_on, is_busy)
    }

    /// Does all of this in one group.
    async fn together<T: Send + 'static>(&self, jobs: Vec<(Work, Run<T>)>) -> Vec<Result<T>> {
        let busy = self.occupy();
        let answers: Vec<_> = jobs.into_iter().map(|(work, run)| self.writer.submit(work, run)).collect();
        drop(busy);
        join_all(answers).await.into_iter().map(|answer| answer.unwrap()).collect()
    }
}

type Run<T> = Box<dyn FnOnce(&mut Tx<'_>) -> Result<T> + Send>;

fn committed(path: &Path) -> i64 {
    let outside = Connection::open(path).unwrap();
    outside.query_row("SELECT count(*) FROM number", [], |row| row.get(0)).unwrap()
}

fn insert(n: i64) -> Run<()> {
    Box::new(move |tx| {
        tx.connection.execute("INSERT INTO number (n) VALUES (?1)", [n])?;
        Ok(())
    })
}

fn insert_and_fail(n: i64) -> Run<()> {
    Box::new(move |tx| {
        insert(n)(tx)?;
        Err(Fault::new(StoreErrorKind::Conflict, "changed my mind"))
    })
}

fn kinds(outcomes: &[Result<()>]) -> Vec<Option<StoreErrorKind>> {
    outcomes.iter().map(|outcome| outcome.as_ref().err().map(Fault::kind)).collect()
}

#[tokio::test]
async fn what_waits_shares_one_transaction() {
    let scene = Scene::new();
    let path = scene.directory.path().join("x.db");
    let mut jobs: Vec<_> = (0..5).map(|n| (Work::Plain, insert(n))).collect();
    let (seen, tell) = mpsc::channel();
    jobs.push((
        Work::Plain,
        Box::new(move |_: &mut Tx<'_>| {
            seen.send(committed(&path)).unwrap();
            Ok(())
        }),
    ));
    assert_eq!(kinds(&scene.together(jobs).await), [None; 6]);
    assert_eq!(tell.recv().unwrap(), 0, "nothing was committed before the last of them ran");
    assert_eq!(scene.committed(), 5);
}

#[tokio::test]
async fn one_that_changes_its_mind_fails_alone() {
    let scene = Scene::new();
    let jobs = vec![
        (Work::Plain, insert(1)),
        (Work::Undoable, insert_and_fail(2)),
        (Work::Undoable, insert(3)),
        (Work::Plain, Box::new(|_: &mut Tx<'_>| Err(Fault::new(StoreErrorKind::Invalid, "no"))) as Run<()>),
        (Work::Plain, insert(4)),
    ];
    let outcomes = scene.together(jobs).await;
    let expected = [None, Some(StoreErrorKind::Conflict), None, Some(StoreErrorKind::Invalid), None];
    assert_eq!(kinds(&outcomes), expected);
    assert_eq!(scene.committed(), 3);
}

#[tokio::test]
async fn one_that_breaks_half_way_fails_all_that_share_its_transaction_and_no_more() {
    let scene = Scene::new();
    let jobs = vec![(Work::Plain, insert(1)), (Work::Plain, insert_and_fail(2)), (Work::Plain, insert(3))];
    assert_eq!(kinds(&scene.together(jobs).await), [Some(StoreErrorKind::Conflict); 3]);
    assert_eq!(scene.committed(), 0);
    scene.execute("INSERT INTO number (n) VALUES (4)").await;
    assert_eq!(scene.committed(), 1);
}

#[tokio::test]
async fn a_full_disk_fails_all_and_the_file_works_again_once_there_is_space() {
    let scene = Scene::new();
    scene.execute("PRAGMA max_page_count = 20").await;
    let big = || -> (Work, Run<()>) {
        let run = |tx: &mut Tx<'_>| {
            Ok(tx.connection.execute_batch("INSERT INTO number (filler) VALUES (zeroblob(100000))")?)
        };
        (Work::Plain, Box::new(run))
    };
    let outcomes = scene.together(vec![(Work::Plain, insert(1)), big(), (Work::Plain, insert(2))]).await;
    assert_eq!(kinds(&outcomes), [Some(StoreErrorKind::Full); 3]);
    assert_eq!(scene.committed(), 0);
    scene.execute("PRAGMA max_page_count = 1000").await;
    assert_eq!(kinds(&scene.together(vec![big(), (Work::Plain, insert(2))]).await), [None; 2]);
    assert_eq!(scene.committed(), 2);
}

#[tokio::test]
async fn work_that_nobody_waits_for_any_more_is_not_begun() {
    let scene = Scene::new();
    let busy = scene.occupy();
    let (dropped, kept) =
        (scene.writer.submit(Work::Plain, insert(1)), scene.writer.submit(Work::Plain, insert(2)));
    drop(dropped);
    drop(busy);
    kept.await.unwrap().unwrap();
    assert_eq!(scene.committed(), 1);
}

#[tokio::test]
async fn work_whose_caller_goes_away_while_its_transaction_waits_is_not_begun() {
    let scene = Scene::new();
    let busy = scene.occupy();
    let (waits, is_waiting) = scene.occupy_soon();
    let (dropped, kept) =
        (scene.writer.submit(Work::Plain, insert(1)), scene.writer.submit(Work::Plain, insert(2)));
    drop(busy);
    is_waiting.recv().unwrap();
    drop(dropped);
    drop(waits);
    kept.await.unwrap().unwrap();
    assert_eq!(scene.committed(), 1);
}

#[tokio::test]
async fn effects_happen_after_the_commit_and_only_of_what_was_committed() {
    let scene = Scene::new();
    let applied = Arc::new(AtomicI64::new(0));
    let with_effect = |fails: bool| -> Run<()> {
        let (applied, path) = (Arc::clone(&applied), scene.directory.path().join("x.db"));
        Box::new(move |tx| {
            tx.after_commit(move || {
                applied.fetch_add(committed(&path), Ordering::SeqCst);
            });
            if fails { insert_and_fail(1)(tx) } else { insert(1)(tx) }
        })
    };
    scene.together(vec![(Work::Undoable, with_effect(true)), (Work::Undoable, with_effect(false))]).await;
    assert_eq!(applied.load(Ordering::SeqCst), 1);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_claims_file_that_cannot_be_written_fails_new_claims_alone() {
    let scene = Scene::new();
    let in_flight = scene.shared.dispatching.of(1);
    assert!(in_flight.take_lock().unwrap());
    in_flight.hold(7, 1);
    scene.execute("INSERT INTO number (n) VALUES (0)").await;
    let claims = scene.directory.path().join("x.db-claims-1");
    std::fs::remove_file(&claims).unwrap();
    std::os::unix::fs::symlink("/dev/full", &claims).unwrap();

    in_flight.give_back(&[7], 1);
    assert_eq!(kinds(&scene.together(vec![(Work::Plain, insert(1))]).await), [None]);
    let claim: Run<()> = Box::new({
        let in_flight = Arc::clone(&in_flight);
        move |_| {
            in_flight.hold(8, 2);
            Ok(())
        }
    });
    let outcomes = scene.together(vec![(Work::Plain, insert(2)), (Work::Plain, claim)]).await;
    assert_eq!(kinds(&outcomes), [Some(StoreErrorKind::Full); 2]);
    assert!(in_flight.give_all_back(2));
    assert_eq!(kinds(&scene.together(vec![(Work::Plain, insert(3))]).await), [None]);
}

/// As a panic, but without printing one.
fn panic() -> ! {
    std::panic::resume_unwind(Box::new(()))
}

#[tokio::test]
async fn one_that_panics_fails_and_the_thread_goes_on() {
    let scene = Scene::new();
    let insert_and_panic = |n: i64| -> Run<()> {
        Box::new(move |tx| {
            insert(n)(tx)?;
            panic()
        })
    };
    let jobs =
        vec![(Work::Plain, insert(1)), (Work::Undoable, insert_and_panic(2)), (Work::Plain, insert(3))];
    assert_eq!(kinds(&scene.together(jobs).await), [None, Some(StoreErrorKind::Other), None]);
    assert_eq!(scene.committed(), 2);

    let jobs = vec![(Work::Plain, insert(4)), (Work::Plain, insert_and_panic(5))];
    assert_eq!(kinds(&scene.together(jobs).await), [Some(StoreErrorKind::Other); 2]);
    assert_eq!(scene.committed(), 2, "half of it was written: nothing is committed");
}

#[tokio::test]
async fn when_the_thread_dies_callers_are_told_and_others_may_dispatch() {
    let scene = Scene::new();
    let in_flight = scene.shared.dispatching.of(1);
    assert!(in_flight.take_lock().unwrap());
    let busy = scene.occupy();
    let fatal = scene.writer.submit(Work::Plain, |tx| {
        tx.after_commit(|| panic());
        Ok(())
    });
    let waiting = scene.writer.submit(Work::Plain, insert(1));
    drop(busy);
    assert!(fatal.await.is_err());
    assert!(waiting.await.is_err());
    assert!(scene.writer.submit(Work::Plain, insert(2)).await.is_err());
    let deadline = Instant::now() + Duration::from_secs(10);
    while in_flight.has_lock() {
        assert!(Instant::now() < deadline, "others may not dispatch");
        std::thread::yield_now();
    }
}
