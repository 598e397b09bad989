//! Storing: how fast callers get their acknowledgements.

use std::time::Duration;

use super::ours::Ours;
use crate::{
    bounds::{self, File},
    contest::{Entrants, Ground, Scenario},
    workload::{Dues, Workload},
};

/// A slow disk makes a round shorter, not longer.
const LONGEST: Duration = Duration::from_secs(5);

pub(crate) const ONE_PRODUCER: Scenario = Scenario {
    name: "store/1-producer",
    ours: "postdate: one task, one message in each call",
    bound: "by hand: one thread, one message in each commit",
    prepare: |ground| Ok(pair(ground, 20_000, 1, 1)),
};

pub(crate) const EIGHT_PRODUCERS: Scenario = Scenario {
    name: "store/8-producers",
    ours: "postdate: eight tasks, one message in each call",
    bound: "by hand: eight threads and connections, one message in each commit",
    prepare: |ground| Ok(pair(ground, 40_000, 8, 1)),
};

pub(crate) const BATCHES_OF_100: Scenario = Scenario {
    name: "store/batches-of-100",
    ours: "postdate: one task, 100 messages in each call",
    bound: "by hand: one thread, 100 messages in each commit",
    prepare: |ground| Ok(pair(ground, 50_000, 1, 100)),
};

pub(crate) const BATCHES_OF_1000: Scenario = Scenario {
    name: "store/batches-of-1000",
    ours: "postdate: one task, 1,000 messages in each call",
    bound: "by hand: one thread, 1,000 messages in each commit",
    prepare: |ground| Ok(pair(ground, 100_000, 1, 1_000)),
};

fn pair(ground: &Ground, count: usize, producers: usize, batch: usize) -> Entrants {
    let messages = Workload::new().messages(ground.scaled(count), Dues::FarAhead);
    let same = messages.clone();
    Entrants::pair(
        Box::new(move |ground| {
            let folder = ground.empty_folder()?;
            Ours::on_sqlite(ground, folder.path())?.store(ground, &messages, producers, batch, LONGEST)
        }),
        Box::new(move |ground| {
            let folder = ground.empty_folder()?;
            let file = File::create(&folder.path().join("bound.db"))?;
            bounds::store::store(&file, &same, producers, batch, LONGEST)
        }),
    )
}
