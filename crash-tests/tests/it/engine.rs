//! The whole engine on a file whose disk fails for a while.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crash_tests::{
    Call, Fault,
    Lasting::{ForGood, Once},
};
use futures::future::join_all;
use postdate::{
    DelayedDelivery, Due, Message, Queues as _, SendError,
    sqlite::{Options, Sqlite},
};
use rusqlite::ffi;

use crate::{
    examine::examine,
    ledger::{Expected, State},
    place::{PATIENCE, Place, many},
    world::{BILLING, ORDERS, address, body, count, id},
};

const SENDERS: usize = 3;

/// Of each sender, one after the other.
const MESSAGES: usize = 5;

/// Sends messages while calls fail. Answers how many calls did and how many sends had to be repeated.
async fn deliver(fault: Fault) -> (u64, usize) {
    let place = Place::new();
    let sqlite = Sqlite::with_options(place.path(), Options::new()).await.unwrap();
    for queue in [BILLING, "error"] {
        sqlite.queues().create(&address(queue)).await.unwrap();
    }
    let delivery = DelayedDelivery::builder(ORDERS)
        .store(sqlite.clone())
        .dispatcher(sqlite.queues().dispatcher())
        .start()
        .await
        .unwrap();
    place.disk.inject(fault);
    let send = async |name: String| {
        let mut repeats = 0;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = Message::new(body(&name)).header("name", name.as_str()).id(id(&name));
            match delivery.send(BILLING, message, Due::NOW).await {
                Ok(_) => return repeats,
                Err(SendError::Store(error)) => {
                    assert!(error.is_transient(), "{error:?}");
                    assert!(Instant::now() < deadline, "{error:?}");
                    heal_when_tired(&place);
                    repeats += 1;
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let send_all = async |sender: usize| {
        let mut repeats = 0;
        for number in 0..MESSAGES {
            repeats += send(name(sender, number)).await;
        }
        repeats
    };
    let repeats = join_all((0..SENDERS).map(send_all)).await.into_iter().sum();
    let deadline = Instant::now() + PATIENCE;
    while delivery.stats().await.map_or(true, |stats| stats.pending > 0) {
        assert!(Instant::now() < deadline, "{fault:?}: the delivery has stopped");
        heal_when_tired(&place);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    place.disk.heal();
    delivery.stop().await;
    drop((delivery, sqlite));
    place.wait_until_closed();

    let sent = State { stored: None, queued: vec![BILLING] };
    let names = (0..SENDERS).flat_map(|sender| (0..MESSAGES).map(move |number| name(sender, number)));
    let states: BTreeMap<_, _> = names.map(|name| (name, sent.clone())).collect();
    let (examined, world) = examine(&place.path(), &Expected::from(&states)).await;
    assert!(examined.is_sound(), "{fault:?}: {examined:?}");
    assert!(world.unwrap().queues.browse(&address("error"), 0, count(9)).await.unwrap().is_empty());
    place.wait_until_closed();
    (place.disk.fired(), repeats)
}

fn name(sender: usize, number: usize) -> String {
    format!("o{sender}x{number}")
}

/// Lets a disk that fails for good work again after a while.
fn heal_when_tired(place: &Place) {
    if place.disk.fired() > 5 {
        place.disk.heal();
    }
}

/// The `step`th calls of each kind, many at once, until there are no more.
async fn sweep(step: u64, fault: impl Fn(u64) -> Fault) {
    const AT_ONCE: u64 = 12;
    let step = if many(1) > 1 { 1 } else { step };
    let (mut next, mut strikes, mut repeats) = (1, 0, 0);
    loop {
        let runs = join_all((0..AT_ONCE).map(|run| deliver(fault(next + run * step)))).await;
        next += AT_ONCE * step;
        strikes += runs.iter().map(|(fired, _)| fired).sum::<u64>();
        repeats += runs.iter().map(|(_, repeats)| repeats).sum::<usize>();
        if runs.iter().any(|(fired, _)| *fired == 0) {
            break;
        }
    }
    println!("{:?}: until call {next}, {strikes} faults, {repeats} sends repeated", fault(1));
    assert!(strikes > 0, "no fault was injected");
}

#[tokio::test]
async fn s17_delivery_goes_on_after_a_fault_and_every_message_arrives_once() {
    for (call, step) in [(Call::Sync, 1), (Call::Write, 5), (Call::Read, 9), (Call::LockShared, 17)] {
        sweep(step, |nth| Fault::io(call, nth, Once)).await;
    }
}

#[tokio::test]
async fn s17_l18_delivery_goes_on_when_the_disk_works_again_and_every_message_arrives_once() {
    for (call, step) in [(Call::Sync, 2), (Call::Write, 7), (Call::Read, 19), (Call::LockShared, 37)] {
        sweep(step, |nth| Fault::io(call, nth, ForGood)).await;
    }
    sweep(7, |nth| Fault::io(Call::Write, nth, ForGood).code(ffi::SQLITE_FULL)).await;
}
