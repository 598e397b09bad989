//! Draining: how fast what is overdue leaves.

use anyhow::Result;
use postdate_core::DelayedMessage;

use super::{empty_database, gauged, peers, remove};
use crate::{
    bounds::drain::To,
    contest::{Contestant, Entrants, Ground, Scenario},
    cpu::Measured,
    postgres::{
        by_hand,
        ours::ours_in,
        peers::{APALIS, GRAPHILE, PGMQ, Peer, Running},
        server::Database,
    },
    workload::{Dues, Workload},
};

/// So many messages are stored at a time before a round.
const FILL_CHUNK: usize = 1_000;
/// How long a peer may take, in seconds. What it did until then is measured.
const LONGEST: usize = 15;
const PEERS: &[Peer] = &[PGMQ, GRAPHILE, APALIS];

pub(super) const ONE_WORKER: Scenario = Scenario {
    name: "postgres/drain/1-worker",
    ours: "postdate: to a dispatcher that only counts",
    bound: "by hand: lock 500, delete them, commit",
    prepare: |ground| Load::plain(ground).beside_peers(ground),
};

pub(super) const FOUR_WORKERS: Scenario = Scenario {
    name: "postgres/drain/4-workers",
    ours: "postdate: four deliveries, each with a store of its own",
    bound: "by hand: four tasks and connections",
    prepare: |ground| Load { workers: 4, ..Load::plain(ground) }.beside_peers(ground),
};

pub(super) const SIX_DISPATCHERS: Scenario = Scenario {
    name: "postgres/drain/6-dispatchers",
    ours: "postdate: six deliveries, each with a store of its own",
    bound: "postdate: one",
    prepare: |ground| {
        let load = Load::plain(ground);
        Ok(Entrants::pair(ours(Load { workers: 6, ..load }), ours(load)))
    },
};

pub(super) const QUEUE: Scenario = Scenario {
    name: "postgres/drain/queue",
    ours: "postdate: to a queue in the same schema, exactly once",
    bound: "by hand: lock 500, insert them into a queue, delete them",
    prepare: |ground| {
        let load = Load { to: To::LocalQueue, ..Load::plain(ground) };
        Ok(Entrants::pair(ours(load), by_hand(load)))
    },
};

pub(super) const OLD_SNAPSHOT: Scenario = Scenario {
    name: "postgres/drain/old-snapshot",
    ours: "postdate: beside a transaction as old as the round",
    bound: "by hand: the same",
    prepare: |ground| Load { old_snapshot: true, ..Load::plain(ground) }.beside_peers(ground),
};

pub(super) const OLD_SNAPSHOT_COST: Scenario = Scenario {
    name: "postgres/drain/old-snapshot-cost",
    ours: "postdate: beside a transaction as old as the round",
    bound: "postdate: without it",
    prepare: |ground| {
        let load = Load::plain(ground);
        Ok(Entrants::pair(ours(Load { old_snapshot: true, ..load }), ours(load)))
    },
};

pub(super) const BACKLOG: Scenario = Scenario {
    name: "postgres/drain/backlog",
    ours: "postdate: 50,000 due beside 1,000,000 for next year",
    bound: "by hand: the same",
    prepare: |ground| {
        let load = Load::beside_backlog(ground);
        Ok(Entrants::pair(ours(load), by_hand(load)))
    },
};

pub(super) const BACKLOG_COST: Scenario = Scenario {
    name: "postgres/drain/backlog-cost",
    ours: "postdate: 50,000 due beside 1,000,000 for next year",
    bound: "postdate: 50,000 due and nothing else",
    prepare: |ground| {
        let load = Load::beside_backlog(ground);
        Ok(Entrants::pair(ours(load), ours(Load { far: 0, ..load })))
    },
};

#[derive(Clone, Copy)]
struct Load {
    to: To,
    /// Stored before each round.
    due: usize,
    /// Stored before the first round, and still there after the last one.
    far: usize,
    workers: usize,
    old_snapshot: bool,
}

impl Load {
    fn plain(ground: &Ground) -> Self {
        Self { to: To::Nowhere, due: ground.scaled(100_000), far: 0, workers: 1, old_snapshot: false }
    }

    fn beside_backlog(ground: &Ground) -> Self {
        Self { due: ground.scaled(50_000), far: ground.scaled(1_000_000), ..Self::plain(ground) }
    }

    fn beside_peers(self, ground: &Ground) -> Result<Entrants> {
        let task = format!("drain {} {} {LONGEST}", self.workers, self.due);
        let work = if self.old_snapshot { peer_beside_old_snapshot } else { peer };
        Ok(Entrants { ours: ours(self), bound: by_hand(self), peers: peers(ground, PEERS, &task, work)? })
    }

    fn drained(
        self,
        ground: &Ground,
        database: &Database,
        drain: impl FnOnce() -> Result<Measured>,
    ) -> Result<Measured> {
        if !self.old_snapshot {
            return gauged(ground, database, drain);
        }
        gauged(ground, database, || {
            let _held = ground.runtime.block_on(database.hold_snapshot())?;
            drain()
        })
    }
}

fn ours(load: Load) -> Contestant {
    let mut workload = Workload::new();
    let mut kept = None;
    Box::new(move |ground| {
        let (database, ours) = match kept.take() {
            Some(kept) => kept,
            None => {
                let database = new_database(ground, load)?;
                let ours = ours_in(ground, &database, load.workers)?;
                fill(load.far, Dues::FarAhead, &mut workload, |messages| ours.fill(ground, messages))?;
                (database, ours)
            }
        };
        fill(load.due, Dues::Overdue, &mut workload, |messages| ours.fill(ground, messages))?;
        let drain = || ours.drain(ground, load.to, load.due);
        let measured = load.drained(ground, &database, drain)?;
        if load.far > 0 {
            kept = Some((database, ours));
        } else {
            drop(ours);
            remove(ground, database)?;
        }
        Ok(measured)
    })
}

fn by_hand(load: Load) -> Contestant {
    let mut workload = Workload::new();
    let mut kept = None;
    Box::new(move |ground| {
        let fill_with = |database: &Database, workload: &mut Workload, count, dues| {
            let mut connection = ground.runtime.block_on(database.connect())?;
            fill(count, dues, workload, |messages| {
                ground.runtime.block_on(by_hand::store::fill(&mut connection, messages))
            })
        };
        let database = match kept.take() {
            Some(kept) => kept,
            None => {
                let database = new_database(ground, load)?;
                ground.runtime.block_on(by_hand::create(&database))?;
                fill_with(&database, &mut workload, load.far, Dues::FarAhead)?;
                database
            }
        };
        fill_with(&database, &mut workload, load.due, Dues::Overdue)?;
        let drain = || ground.runtime.block_on(by_hand::drain::drain(&database, load.workers, load.to));
        let measured = load.drained(ground, &database, drain)?;
        if load.far > 0 {
            kept = Some(database);
        } else {
            remove(ground, database)?;
        }
        Ok(measured)
    })
}

fn peer(ground: &Ground, database: &Database, peer: &mut Running) -> Result<Measured> {
    gauged(ground, database, || peer.run())
}

fn peer_beside_old_snapshot(ground: &Ground, database: &Database, peer: &mut Running) -> Result<Measured> {
    gauged(ground, database, || {
        let _held = ground.runtime.block_on(database.hold_snapshot())?;
        peer.run()
    })
}

/// Beside a backlog statements must not be planned for what is due just now.
fn new_database(ground: &Ground, load: Load) -> Result<Database> {
    let database = empty_database(ground)?;
    if load.far > 0 {
        ground.runtime.block_on(database.plan_once())?;
    }
    Ok(database)
}

fn fill(
    count: usize,
    dues: Dues,
    workload: &mut Workload,
    mut store: impl FnMut(&[DelayedMessage]) -> Result<()>,
) -> Result<()> {
    for start in (0..count).step_by(FILL_CHUNK) {
        store(&workload.messages(FILL_CHUNK.min(count - start), dues))?;
    }
    Ok(())
}
