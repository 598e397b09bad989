//! The power goes off while the file is made, and while the log is written back.

use std::collections::BTreeMap;

use crash_tests::{Chance, Entry, Weather};
use postdate::sqlite::Durability;

use crate::{
    images::{Recording, Tally},
    ledger::Ledger,
    place::{Place, connect, many, seed},
    world::{PAST, World},
};

#[tokio::test]
async fn set_up_can_be_repeated_whenever_the_power_went_off() {
    let seed = seed();
    let mut chance = Chance::new(seed);
    let place = Place::new();
    let ledger = Ledger::new(&place.disk, BTreeMap::new());
    let world = World::open(&place.path(), Durability::PowerLoss).await.unwrap();
    world.store(&ledger, &["o1".to_owned()], PAST).await.unwrap();
    let recording = Recording::of(&place, ledger);
    drop(world);
    place.wait_until_closed();
    let mut tally = Tally::default();
    for until in 0..=recording.log.entries().len() {
        for _ in 0..many(1) {
            recording.crash(until, Weather::of(&mut chance), &mut chance, &mut tally).await;
        }
    }
    println!("{tally}");
    tally.assert_sound(format_args!("POSTDATE_CRASH_SEED={seed}"));
}

/// More than ten thousand pages of 512 bytes, after which the writer writes the log back by itself.
const BIG: &str = "obig";

#[tokio::test]
async fn nothing_is_lost_while_the_writer_writes_the_log_back_by_itself() {
    let seed = seed();
    let mut chance = Chance::new(seed);
    let place = Place::new();
    connect(&place.path())
        .unwrap()
        .execute_batch("PRAGMA page_size = 512; PRAGMA journal_mode = wal")
        .unwrap();
    let ledger = Ledger::new(&place.disk, BTreeMap::new());
    let world = World::open(&place.path(), Durability::PowerLoss).await.unwrap();
    world.store(&ledger, &["o1".to_owned()], PAST).await.unwrap();
    world.store(&ledger, &[BIG.to_owned()], PAST).await.unwrap();
    world.store(&ledger, &["o2".to_owned()], PAST).await.unwrap();
    let recording = Recording::of(&place, ledger);
    drop(world);
    place.wait_until_closed();

    let entries = recording.log.entries();
    let mut files = BTreeMap::new();
    for entry in entries {
        if let Entry::Create { name, inode } = entry {
            files.insert(name.as_str(), *inode);
        }
    }
    let syncs_of = |name: &str| {
        let file = files[name];
        (0..entries.len()).filter(move |at| matches!(entries[*at], Entry::Sync(inode) if inode == file))
    };
    let written_back = syncs_of("postdate.db").next_back().unwrap();
    let committed = syncs_of("postdate.db-wal").rfind(|at| *at < written_back).unwrap();
    assert!(written_back - committed > 10_000, "the log was not written back while the file was open");
    let mut tally = Tally::default();
    for _ in 0..many(6) {
        let until = committed + chance.below(entries.len() - committed + 1);
        recording.crash(until, Weather::of(&mut chance), &mut chance, &mut tally).await;
    }
    println!("{tally}");
    tally.assert_sound(format_args!("POSTDATE_CRASH_SEED={seed}"));
}
