//! The same crashes where something must be found: so that finding nothing elsewhere means something.

use std::collections::BTreeMap;

use crash_tests::Chance;
use postdate::sqlite::Durability;

use crate::{
    images::Recording,
    ledger::{Change, Ledger},
    place::{Place, many, seed},
    world::{PAST, SHIPPING, World},
};

#[tokio::test]
async fn a_store_that_survives_only_process_crashes_loses_and_stays_whole() {
    let mut chance = Chance::new(seed());
    let place = Place::new();
    let recording = Recording::of_busy_times(&place, Durability::ProcessCrash, &mut chance).await;
    let tally = recording.crash_often(many(60), &mut chance).await;
    println!("{tally}");
    assert!(tally.losing > 0, "{tally}");
    assert_eq!(tally.damaged, 0, "{tally}");
}

#[tokio::test]
async fn a_disk_that_lies_about_syncs_loses_and_damages() {
    let mut chance = Chance::new(seed());
    let place = Place::new();
    place.disk.lie();
    let recording = Recording::of_busy_times(&place, Durability::PowerLoss, &mut chance).await;
    let tally = recording.crash_often(many(60), &mut chance).await;
    println!("{tally}");
    assert!(tally.losing > 0 && tally.damaged > 0, "{tally}");
}

#[tokio::test]
async fn sending_and_removing_in_two_transactions_is_not_taken_for_one() {
    let mut chance = Chance::new(seed());
    let place = Place::new();
    let ledger = Ledger::new(&place.disk, BTreeMap::new());
    let world = World::open(&place.path(), Durability::PowerLoss).await.unwrap();
    let names = ["ia", "ib"].map(str::to_owned);
    world.store(&ledger, &names, PAST).await.unwrap();
    let unwritten = Ledger::new(&place.disk, BTreeMap::new());
    let step = names.map(|name| (name, vec![Change::Remove, Change::Send(SHIPPING)])).into();
    ledger.step(step, world.deliver_invoices(&unwritten, 2)).await.unwrap();
    drop(world);
    place.wait_until_closed();
    let tally = Recording::of(&place, ledger).crash_often(many(60), &mut chance).await;
    println!("{tally}");
    assert!(tally.wrong > 0, "{tally}");
    assert_eq!((tally.damaged, tally.losing), (0, 0), "{tally}");
}

#[tokio::test]
async fn an_acknowledgement_before_the_commit_is_found_out() {
    let mut chance = Chance::new(seed());
    let place = Place::new();
    let ledger = Ledger::new(&place.disk, BTreeMap::new());
    let world = World::open(&place.path(), Durability::PowerLoss).await.unwrap();
    for number in 0..10 {
        let name = format!("o{number}");
        let promise = std::future::ready(Ok::<_, ()>(()));
        ledger.step(vec![(name.clone(), vec![Change::Store { due: PAST }])], promise).await.unwrap();
        let unwritten = Ledger::new(&place.disk, BTreeMap::new());
        world.store(&unwritten, &[name], PAST).await.unwrap();
    }
    drop(world);
    place.wait_until_closed();
    let tally = Recording::of(&place, ledger).crash_often(many(60), &mut chance).await;
    println!("{tally}");
    assert!(tally.losing > 0, "{tally}");
}
