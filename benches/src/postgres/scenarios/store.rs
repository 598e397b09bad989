//! Storing: how fast callers get their acknowledgements.

use std::time::Duration;

use anyhow::Result;

use super::{empty_database, gauged, peers, remove};
use crate::{
    contest::{Contestant, Entrants, Ground, Scenario},
    postgres::{
        by_hand,
        ours::ours_in,
        peers::{APALIS, FANG, GRAPHILE, PGMQ, Peer},
    },
    workload::{Dues, Workload},
};

/// A slow disk makes a round shorter, not longer.
const LONGEST: Duration = Duration::from_secs(5);
const SINGLE: &[Peer] = &[PGMQ, GRAPHILE, APALIS, FANG];
const BATCHES: &[Peer] = &[PGMQ, GRAPHILE, APALIS];

pub(super) const ONE_PRODUCER: Scenario = Scenario {
    name: "postgres/store/1-producer",
    ours: "postdate: one task, one message in each call",
    bound: "by hand: one task, one message in each commit",
    prepare: |ground| entrants(ground, 20_000, 1, 1, SINGLE),
};

pub(super) const EIGHT_PRODUCERS: Scenario = Scenario {
    name: "postgres/store/8-producers",
    ours: "postdate: eight tasks, one message in each call",
    bound: "by hand: eight tasks, one message in each commit",
    prepare: |ground| entrants(ground, 100_000, 8, 1, SINGLE),
};

pub(super) const BATCHES_OF_1000: Scenario = Scenario {
    name: "postgres/store/batches-of-1000",
    ours: "postdate: one task, 1,000 messages in each call",
    bound: "by hand: one task, 1,000 messages in each commit",
    prepare: |ground| entrants(ground, 100_000, 1, 1_000, BATCHES),
};

fn entrants(
    ground: &Ground,
    count: usize,
    producers: usize,
    batch: usize,
    compared: &[Peer],
) -> Result<Entrants> {
    let count = ground.scaled(count);
    let messages = Workload::new().messages(count, Dues::FarAhead);
    let same = messages.clone();
    let ours: Contestant = Box::new(move |ground| {
        let database = empty_database(ground)?;
        let ours = ours_in(ground, &database, 1)?;
        let store = || ours.store(ground, &messages, producers, batch, LONGEST);
        let measured = gauged(ground, &database, store)?;
        drop(ours);
        remove(ground, database)?;
        Ok(measured)
    });
    let bound: Contestant = Box::new(move |ground| {
        let database = empty_database(ground)?;
        ground.runtime.block_on(by_hand::create(&database))?;
        let store = by_hand::store::store(&database, &same, producers, batch, LONGEST);
        let measured = gauged(ground, &database, || ground.runtime.block_on(store))?;
        remove(ground, database)?;
        Ok(measured)
    });
    let task = format!("store {producers} {batch} {count} {}", LONGEST.as_secs());
    let work =
        |ground: &Ground, database: &_, peer: &mut super::Running| gauged(ground, database, || peer.run());
    Ok(Entrants { ours, bound, peers: peers(ground, compared, &task, work)? })
}
