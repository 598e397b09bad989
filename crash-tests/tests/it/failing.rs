//! A call to the disk fails: each of them in turn, once or from then on.

use std::collections::BTreeMap;

use crash_tests::{
    Call, Chance, Fault,
    Lasting::{self, ForGood, Once},
    Weather,
};
use postdate::{
    DispatchErrorKind, StoreErrorKind,
    sqlite::{Durability, Sqlite},
};
use rusqlite::{Connection, ffi};

use crate::{
    examine::examine,
    images::{Recording, Tally},
    ledger::Ledger,
    place::{Place, connect, many, seed},
    world::{FUTURE, PAST, Result, Trouble, World},
};

/// What came of one kind of fault.
#[derive(Debug, Default)]
struct Sweep {
    runs: u64,
    fired: u64,
    errors: BTreeMap<String, u64>,
    images: Tally,
}

/// One run under a fault.
struct Run<'a> {
    ledger: Ledger,
    troubles: Vec<Trouble>,
    manner: Manner,
    place: &'a Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Does a call again until it works.
    Insists,
    /// Does every call once, as far as it can.
    GoesOn,
}

impl Run<'_> {
    async fn attempt<T>(&mut self, mut call: impl AsyncFnMut(&Ledger) -> Result<T>) -> Option<T> {
        for _ in 0..3 {
            match call(&self.ledger).await {
                Ok(answer) => return Some(answer),
                Err(trouble) => self.troubles.push(trouble),
            }
            if self.manner == Manner::GoesOn {
                return None;
            }
        }
        panic!("failed again and again although the disk works: {:?}", self.troubles);
    }

    /// Everything there is to do, one after the other.
    async fn script(&mut self, world: &World) {
        for names in [&["o1", "o2"][..], &["o-0"], &["i1"], &["i2"]] {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            self.attempt(async |ledger| world.store(ledger, &names, PAST).await).await;
        }
        let [cancelled, moved] = ["o3", "o4"].map(str::to_owned);
        for name in [&cancelled, &moved] {
            let name = std::slice::from_ref(name);
            self.attempt(async |ledger| world.store(ledger, name, FUTURE).await).await;
        }
        self.attempt(async |ledger| world.cancel(ledger, &cancelled).await).await;
        self.attempt(async |ledger| world.reschedule(ledger, &moved, PAST).await).await;
        for round in ["a", "b"] {
            self.attempt(async |ledger| world.deliver_orders(ledger, 10).await).await;
            self.attempt(async |ledger| world.deliver_invoices(ledger, 10).await).await;
            self.attempt(async |ledger| world.receive(ledger, 3).await).await;
            // Nobody is told whether this works.
            if let Ok(connection) = connect(&self.place.path()) {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).ok();
            }
            let names = [format!("o5{round}"), format!("i5{round}")];
            for name in &names {
                let name = std::slice::from_ref(name);
                self.attempt(async |ledger| world.store(ledger, name, PAST).await).await;
            }
        }
    }
}

/// Answers whether the fault struck.
async fn run(fault: Fault, sweep: &mut Sweep, chance: &mut Chance) -> bool {
    let place = Place::new();
    let ledger = Ledger::new(&place.disk, BTreeMap::new());
    let manner = if fault.lasting == Once { Manner::Insists } else { Manner::GoesOn };
    let mut run = Run { ledger, troubles: Vec::new(), manner, place: &place };
    place.disk.inject(fault);
    let open = async |_: &Ledger| World::open(&place.path(), Durability::PowerLoss).await;
    let mut world = run.attempt(open).await;
    if let Some(world) = &world {
        run.script(world).await;
    }
    if fault.lasting == ForGood {
        // Afterwards everything goes on, in the same process and where it is open in the same file.
        place.disk.heal();
        run.manner = Manner::Insists;
        let before = run.troubles.len();
        if world.is_none() {
            world = run.attempt(open).await;
        }
        run.script(world.as_ref().unwrap()).await;
        assert_eq!(run.troubles.len(), before, "fails although the disk works again: {:?}", run.troubles);
    }
    drop(world);
    place.wait_until_closed();
    place.disk.heal();
    check(&run.troubles, fault);
    for trouble in &run.troubles {
        *sweep.errors.entry(text(trouble)).or_default() += 1;
    }

    let recording = Recording::of(&place, run.ledger);
    let expected = recording.ledger.expected(recording.log.marks(recording.log.entries().len()));
    let (examined, world) = examine(&place.path(), &expected).await;
    assert!(examined.is_sound(), "{fault:?}: {examined:?}");
    drop(world);
    place.wait_until_closed();
    let until = chance.below(recording.log.entries().len() + 1);
    recording.crash(until, Weather::of(chance), chance, &mut sweep.images).await;
    sweep.images.assert_sound(fault);
    sweep.runs += 1;
    sweep.fired += place.disk.fired();
    place.disk.fired() > 0
}

/// Every error says in one line what is wrong, and its kind says whether to try again.
fn check(troubles: &[Trouble], fault: Fault) {
    let kind = match fault.code {
        ffi::SQLITE_FULL | ffi::SQLITE_IOERR_SHMSIZE => StoreErrorKind::Full,
        ffi::SQLITE_CANTOPEN => StoreErrorKind::Configuration,
        _ => StoreErrorKind::Unavailable,
    };
    for trouble in troubles {
        let text = text(trouble);
        assert!(!text.contains('\n') && !text.ends_with('.'), "{text}");
        match trouble {
            Trouble::Store(error) => assert_eq!(error.kind(), kind, "{fault:?}: {error:?}"),
            Trouble::Dispatch(error) => assert_eq!(error.kind(), DispatchErrorKind::Unavailable, "{error:?}"),
        }
    }
}

fn text(trouble: &Trouble) -> String {
    let text = match trouble {
        Trouble::Store(error) => error.to_string(),
        Trouble::Dispatch(error) => error.to_string(),
    };
    // Without the folder, which is another one each time.
    text.split_once(".db: ").map_or(text.clone(), |(_, rest)| rest.to_owned())
}

/// Every `step`th call, beginning by chance, until there are no more.
async fn sweep(step: u64, fault: impl Fn(u64) -> Fault) -> Sweep {
    let mut chance = Chance::new(seed());
    let step = if many(1) > 1 { 1 } else { step };
    let mut sweep = Sweep::default();
    let mut nth = 1 + chance.draw() % step;
    while run(fault(nth), &mut sweep, &mut chance).await {
        nth += step;
    }
    let Sweep { runs, fired, errors, images } = &sweep;
    println!(
        "{:?}: {runs} runs until call {nth}, {fired} faults, {} images, {errors:?}",
        fault(1),
        images.images
    );
    assert!(*fired > 0, "no fault was injected");
    sweep
}

#[tokio::test]
async fn s17_a_sync_that_fails_is_no_acknowledgement_and_later_work_goes_on() {
    assert!(!sweep(1, |nth| Fault::io(Call::Sync, nth, Once)).await.errors.is_empty());
}

/// Without its log the file works as well, but a power failure can take back what was acknowledged.
#[tokio::test]
async fn s17_a_file_that_could_not_be_switched_to_its_log_is_not_opened() {
    for call in [Call::Sync, Call::Write, Call::Delete] {
        for nth in 1.. {
            let place = Place::new();
            place.disk.inject(Fault::io(call, nth, Once));
            let opened = Sqlite::open(place.path()).await;
            if place.disk.fired() == 0 {
                assert!(nth > 1, "no fault was injected");
                break;
            }
            let mode = |connection: Connection| {
                connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))
            };
            match opened {
                Ok(_) => assert_eq!(connect(&place.path()).and_then(mode).unwrap(), "wal", "{call:?} {nth}"),
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error:?}"),
            }
        }
    }
}

/// What was left to a sync that failed is never written by a later one.
#[tokio::test]
async fn s17_what_is_acknowledged_after_a_failed_sync_does_not_rest_on_it() {
    let mut chance = Chance::new(seed());
    for nth in 1.. {
        let place = Place::new();
        let ledger = Ledger::new(&place.disk, BTreeMap::new());
        let world = World::open(&place.path(), Durability::PowerLoss).await.unwrap();
        world.store(&ledger, &["o1", "o2"].map(str::to_owned), PAST).await.unwrap();
        world.deliver_orders(&ledger, 2).await.unwrap();
        place.disk.inject(Fault::io(Call::Sync, nth, Once));
        let failed = world.receive(&ledger, 2).await.is_err();
        place.disk.heal();
        world.receive(&ledger, 2).await.unwrap();
        world.store(&ledger, &["o3".to_owned()], PAST).await.unwrap();
        let recording = Recording::of(&place, ledger);
        drop(world);
        place.wait_until_closed();
        let (mut tally, end) = (Tally::default(), recording.log.entries().len());
        recording.crash(end, Weather::Sectors(0), &mut chance, &mut tally).await;
        tally.assert_sound(nth);
        if !failed {
            assert!(nth > 1, "no fault was injected");
            break;
        }
    }
}

#[tokio::test]
async fn s17_while_no_sync_works_nothing_is_acknowledged_and_later_all_goes_on() {
    assert!(!sweep(1, |nth| Fault::io(Call::Sync, nth, ForGood)).await.errors.is_empty());
}

/// A write fails in one of four ways: nothing or half of it happens, on a broken or on a full disk.
fn failing_write(nth: u64, lasting: Lasting) -> Fault {
    let fault = Fault::io(Call::Write, nth, lasting);
    let fault = if nth.is_multiple_of(2) { fault.code(ffi::SQLITE_FULL) } else { fault };
    if (nth / 2).is_multiple_of(2) { fault.half_done() } else { fault }
}

#[tokio::test]
async fn s17_a_write_that_fails_is_no_acknowledgement_and_later_work_goes_on() {
    assert!(!sweep(5, |nth| failing_write(nth, Once)).await.errors.is_empty());
}

#[tokio::test]
async fn s17_while_no_write_works_nothing_is_acknowledged_and_later_all_goes_on() {
    assert!(!sweep(5, |nth| failing_write(nth, ForGood)).await.errors.is_empty());
}

#[tokio::test]
async fn s17_a_file_that_cannot_be_cut_or_deleted_loses_nothing() {
    for lasting in [Once, ForGood] {
        for call in [Call::Truncate, Call::Delete] {
            sweep(1, |nth| Fault::io(call, nth, lasting)).await;
        }
    }
}

#[tokio::test]
async fn s17_a_file_that_cannot_be_opened_read_or_measured_loses_nothing() {
    for lasting in [Once, ForGood] {
        for (call, step) in [(Call::Open, 1), (Call::Read, 9), (Call::Size, 3)] {
            assert!(!sweep(step, |nth| Fault::io(call, nth, lasting)).await.errors.is_empty());
        }
    }
}

#[tokio::test]
async fn s17_locks_and_shared_memory_that_fail_lose_nothing() {
    for lasting in [Once, ForGood] {
        for (call, step) in [(Call::Lock, 2), (Call::MapShared, 1), (Call::LockShared, 17)] {
            assert!(!sweep(step, |nth| Fault::io(call, nth, lasting)).await.errors.is_empty());
        }
    }
    let full = |nth| Fault::io(Call::MapShared, nth, ForGood).code(ffi::SQLITE_IOERR_SHMSIZE);
    assert!(!sweep(1, full).await.errors.is_empty());
}

#[tokio::test]
async fn a_lock_that_others_have_for_a_moment_is_waited_for() {
    for (call, step) in [(Call::Lock, 2), (Call::LockShared, 17)] {
        sweep(step, |nth| Fault::io(call, nth, Once).code(ffi::SQLITE_BUSY)).await;
    }
}
