//! Lateness: how long after its due time a message leaves when there is little to do.

use std::time::Duration;

use jiff::Timestamp;

use super::ours::Ours;
use crate::{
    bounds::{self, File},
    contest::{Entrants, Scenario},
    workload::Workload,
};

/// 40 messages in a second.
const PAUSE: Duration = Duration::from_millis(25);
const AHEAD: Duration = Duration::from_secs(1);

pub(crate) const LOW_LOAD: Scenario = Scenario {
    name: "lateness/low-load",
    ours: "postdate: 40 messages a second, due a second ahead",
    bound: "by hand: a thread that sleeps until the earliest due time",
    prepare: |ground| {
        let count = ground.scaled(400);
        Ok(Entrants::pair(
            Box::new(move |ground| {
                let (folder, workload) = (ground.empty_folder()?, Workload::new());
                let next = |number| workload.message(number, Timestamp::now() + AHEAD);
                Ours::on_sqlite(ground, folder.path())?.lateness(
                    ground,
                    count,
                    PAUSE,
                    next,
                    async |measured| Ok(measured),
                )
            }),
            Box::new(move |ground| {
                let (folder, workload) = (ground.empty_folder()?, Workload::new());
                let next = |number| workload.message(number, Timestamp::now() + AHEAD);
                let file = File::create(&folder.path().join("bound.db"))?;
                bounds::lateness::lateness(&file, count, PAUSE, next)
            }),
        ))
    },
};
