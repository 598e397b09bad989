//! Draining: how fast what is overdue leaves.

use anyhow::Result;

use super::ours::Ours;
use crate::{
    bounds::{self, File, drain::To},
    contest::{Contestant, Entrants, Ground, Scenario},
    workload::{Dues, Workload},
};

/// So many messages are made at a time while a file is filled.
const FILL_CHUNK: usize = 10_000;

pub(crate) const NO_OP: Scenario = Scenario {
    name: "drain/no-op",
    ours: "postdate: to a dispatcher that only counts",
    bound: "by hand: select 500, delete them, commit",
    prepare: |ground| {
        let load = Load { to: To::Nowhere, far: 0, due: ground.scaled(100_000) };
        Ok(Entrants::pair(ours(ground, load)?, by_hand(ground, load)?))
    },
};

pub(crate) const LOCAL_QUEUE: Scenario = Scenario {
    name: "drain/local-queue",
    ours: "postdate: to a queue in the same file, exactly once",
    bound: "by hand: select 500, insert them into a queue, delete them, commit",
    prepare: |ground| {
        let load = Load { to: To::LocalQueue, far: 0, due: ground.scaled(100_000) };
        Ok(Entrants::pair(ours(ground, load)?, by_hand(ground, load)?))
    },
};

pub(crate) const BACKLOG: Scenario = Scenario {
    name: "drain/backlog",
    ours: "postdate: 50,000 due beside 1,000,000 for next year",
    bound: "by hand: the same",
    prepare: |ground| {
        let load = Load::beside_backlog(ground);
        Ok(Entrants::pair(ours(ground, load)?, by_hand(ground, load)?))
    },
};

pub(crate) const BACKLOG_COST: Scenario = Scenario {
    name: "drain/backlog-cost",
    ours: "postdate: 50,000 due beside 1,000,000 for next year",
    bound: "postdate: 50,000 due and nothing else",
    prepare: |ground| {
        let load = Load::beside_backlog(ground);
        Ok(Entrants::pair(ours(ground, load)?, ours(ground, Load { far: 0, ..load })?))
    },
};

#[derive(Clone, Copy)]
struct Load {
    to: To,
    /// Stored before the first round, and still there after the last one.
    far: usize,
    /// Stored before each round.
    due: usize,
}

impl Load {
    fn beside_backlog(ground: &Ground) -> Self {
        Self { to: To::Nowhere, far: ground.scaled(1_000_000), due: ground.scaled(50_000) }
    }
}

fn ours(ground: &Ground, load: Load) -> Result<Contestant> {
    let folder = ground.empty_folder()?;
    let mut workload = Workload::new();
    let ours = Ours::on_sqlite(ground, folder.path())?;
    fill(load.far, Dues::FarAhead, &mut workload, |messages| ours.fill(ground, messages))?;
    Ok(Box::new(move |ground| {
        let _still_there = &folder;
        fill(load.due, Dues::Overdue, &mut workload, |messages| ours.fill(ground, messages))?;
        ours.drain(ground, load.to, load.due)
    }))
}

fn by_hand(ground: &Ground, load: Load) -> Result<Contestant> {
    let folder = ground.empty_folder()?;
    let mut workload = Workload::new();
    let mut connection = File::create(&folder.path().join("bound.db"))?.connect()?;
    fill(load.far, Dues::FarAhead, &mut workload, |messages| bounds::store::fill(&mut connection, messages))?;
    Ok(Box::new(move |_| {
        let _still_there = &folder;
        fill(load.due, Dues::Overdue, &mut workload, |messages| {
            bounds::store::fill(&mut connection, messages)
        })?;
        bounds::drain::drain(&mut connection, load.to)
    }))
}

fn fill(
    count: usize,
    dues: Dues,
    workload: &mut Workload,
    mut store: impl FnMut(&[postdate_core::DelayedMessage]) -> Result<()>,
) -> Result<()> {
    for start in (0..count).step_by(FILL_CHUNK) {
        store(&workload.messages(FILL_CHUNK.min(count - start), dues))?;
    }
    Ok(())
}
