//! Lateness: how long after its due time a message leaves when there is little to do, and what is asked of the server
//! when there is nothing.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use postdate_core::DelayedMessage;

use super::{empty_database, peers, remove};
use crate::{
    contest::{Contestant, Entrants, Ground, Scenario},
    cpu::Measured,
    postgres::{
        by_hand,
        gauge::Gauge,
        ours::ours_in,
        peers::{APALIS, GRAPHILE, PGMQ, Peer, Running},
        server::Database,
    },
    workload::Workload,
};

/// 40 messages in a second.
const PAUSE: Duration = Duration::from_millis(25);
const AHEAD: Duration = Duration::from_secs(1);
const IDLE_MILLIS: usize = 3_000;
const PEERS: &[Peer] = &[PGMQ, GRAPHILE, APALIS];

pub(super) const LOW_LOAD: Scenario = Scenario {
    name: "postgres/lateness/low-load",
    ours: "postdate: 40 messages a second, due a second ahead",
    bound: "by hand: sleeps until the next due time, or notified",
    prepare: |ground| {
        let count = ground.scaled(200);
        let task = format!("lateness {count} {}", PAUSE.as_millis());
        Ok(Entrants {
            ours: ours(count, 1),
            bound: by_hand(count),
            peers: peers(ground, PEERS, &task, peer)?,
        })
    },
};

pub(super) const SIX_DISPATCHERS: Scenario = Scenario {
    name: "postgres/lateness/6-dispatchers",
    ours: "postdate: six deliveries, each with a store of its own",
    bound: "postdate: one",
    prepare: |ground| {
        let count = ground.scaled(200);
        Ok(Entrants::pair(ours(count, 6), ours(count, 1)))
    },
};

fn ours(count: usize, dispatchers: usize) -> Contestant {
    Box::new(move |ground| {
        let (database, next) = (empty_database(ground)?, next());
        let ours = ours_in(ground, &database, dispatchers)?;
        ground.runtime.block_on(database.settle())?;
        let gauge = ground.runtime.block_on(database.gauge())?;
        let watch = async |measured| watch(ground, &database, gauge, measured).await;
        let measured = ours.lateness(ground, count, PAUSE, next, watch)?;
        drop(ours);
        remove(ground, database)?;
        Ok(measured)
    })
}

fn by_hand(count: usize) -> Contestant {
    Box::new(move |ground| {
        let database = empty_database(ground)?;
        let measured = ground.runtime.block_on(async {
            by_hand::create(&database).await?;
            database.settle().await?;
            let gauge = database.gauge().await?;
            let watch = async |measured| watch(ground, &database, gauge, measured).await;
            by_hand::lateness::lateness(&database, count, PAUSE, next(), watch).await
        })?;
        remove(ground, database)?;
        Ok(measured)
    })
}

fn peer(ground: &Ground, database: &Database, peer: &mut Running) -> Result<Measured> {
    ground.runtime.block_on(database.settle())?;
    let gauge = ground.runtime.block_on(database.gauge())?;
    let measured = peer.run()?;
    ground.runtime.block_on(watch(ground, database, gauge, measured))
}

/// What the server did, and what it is asked now that there is nothing to do.
async fn watch(ground: &Ground, database: &Database, gauge: Gauge, measured: Measured) -> Result<Measured> {
    let server = Some(gauge.stop().await?);
    let time = Duration::from_millis(ground.scaled(IDLE_MILLIS).try_into()?);
    Ok(Measured { server, idle_queries: Some(database.idle_queries(time).await?), ..measured })
}

fn next() -> impl FnMut(usize) -> DelayedMessage {
    let workload = Workload::new();
    move |number| workload.message(number, Timestamp::now() + AHEAD)
}
