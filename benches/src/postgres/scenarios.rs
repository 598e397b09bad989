//! The tasks on PostgreSQL, each in one file per kind.

mod drain;
mod lateness;
mod store;

use anyhow::Result;

use super::{
    peers::{Peer, Running},
    server::Database,
};
use crate::{
    contest::{Contestant, Ground, Scenario},
    cpu::Measured,
};

/// All of them, in the order of the report.
pub(crate) const ALL: &[Scenario] = &[
    store::ONE_PRODUCER,
    store::EIGHT_PRODUCERS,
    store::BATCHES_OF_1000,
    drain::ONE_WORKER,
    drain::FOUR_WORKERS,
    drain::SIX_DISPATCHERS,
    drain::QUEUE,
    drain::OLD_SNAPSHOT,
    drain::OLD_SNAPSHOT_COST,
    drain::BACKLOG,
    drain::BACKLOG_COST,
    lateness::LOW_LOAD,
    lateness::SIX_DISPATCHERS,
];

fn empty_database(ground: &Ground) -> Result<Database> {
    ground.runtime.block_on(ground.arena()?.server.empty_database())
}

fn remove(ground: &Ground, database: Database) -> Result<()> {
    ground.runtime.block_on(database.remove())
}

/// Does the work from a settled start, and looks at what the server does meanwhile.
fn gauged(ground: &Ground, database: &Database, work: impl FnOnce() -> Result<Measured>) -> Result<Measured> {
    ground.runtime.block_on(database.settle())?;
    let gauge = ground.runtime.block_on(database.gauge())?;
    let measured = work()?;
    let server = ground.runtime.block_on(gauge.stop())?;
    Ok(Measured { server: Some(server), ..measured })
}

/// Those of these that were asked for. `work` is given a peer that is ready for the task.
fn peers(
    ground: &Ground,
    peers: &[Peer],
    task: &str,
    work: fn(&Ground, &Database, &mut Running) -> Result<Measured>,
) -> Result<Vec<(&'static str, Contestant)>> {
    let Some(program) = ground.arena()?.peers.clone() else { return Ok(Vec::new()) };
    let contestant = |&peer: &Peer| {
        let (program, task) = (program.clone(), task.to_owned());
        let contestant: Contestant = Box::new(move |ground| {
            let database = empty_database(ground)?;
            let mut running = program.start(peer, &database, &task)?;
            let measured = work(ground, &database, &mut running)?;
            drop(running);
            remove(ground, database)?;
            Ok(measured)
        });
        (peer.what, contestant)
    };
    Ok(peers.iter().map(contestant).collect())
}
