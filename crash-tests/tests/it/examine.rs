//! Opening what a crash has left, and looking at everything in it.

use std::{collections::BTreeMap, path::Path};

use futures::future::join_all;
use postdate::{Filter, ListQuery, OutgoingMessage, Queues as _, sqlite::Durability};

use crate::{
    ledger::{Expected, Finding, State, Stored},
    place::connect,
    world::{QUEUES, Result, World, address, count, message},
};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    /// Why the file is no use, or what SQLite says about it.
    pub(crate) damage: Option<String>,
    pub(crate) findings: Vec<Finding>,
    /// Messages whose headers or bodies are not their own.
    pub(crate) altered: Vec<String>,
    pub(crate) states: BTreeMap<String, State>,
}

impl Examined {
    pub(crate) fn is_sound(&self) -> bool {
        self.damage.is_none() && self.findings.is_empty() && self.altered.is_empty()
    }
}

/// Opens the file as a service would after the crash, and leaves it open if that works.
pub(crate) async fn examine(path: &Path, expected: &Expected) -> (Examined, Option<World>) {
    let mut examined = Examined::default();
    let world = match World::open(path, Durability::PowerLoss).await {
        Ok(world) => world,
        Err(error) => {
            examined.damage = Some(format!("cannot be opened: {error:?}"));
            return (examined, None);
        }
    };
    examined.damage = check(path);
    match look(&world, &mut examined).await {
        Ok(()) => examined.findings = expected.judge(&examined.states),
        Err(error) => examined.damage = Some(format!("cannot be read: {error:?}")),
    }
    (examined, Some(world))
}

/// What SQLite finds wrong.
fn check(path: &Path) -> Option<String> {
    let checked = connect(path).and_then(|connection| {
        connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
    });
    match checked {
        Ok(answer) if answer == "ok" => None,
        Ok(answer) => Some(answer),
        Err(error) => Some(format!("cannot be checked: {error}")),
    }
}

async fn look(world: &World, examined: &mut Examined) -> Result<()> {
    for store in [&world.orders, &world.invoices] {
        let listing = store.list(&ListQuery::new(Filter::default(), count(100_000))).await?;
        let found = join_all(listing.messages.iter().map(|summary| store.get(&summary.id))).await;
        for found in found {
            let found = found?.expect("what is listed is there: nobody else has the file open");
            let stored = Stored { due: found.message.due.as_second(), failures: found.message.failures };
            note(examined, &found.message.message).stored = Some(stored);
        }
    }
    for queue in QUEUES {
        for queued in world.queues.browse(&address(queue), 0, count(100_000)).await? {
            note(examined, &queued.message).queued.push(queue);
        }
    }
    Ok(())
}

fn note<'a>(examined: &'a mut Examined, found: &OutgoingMessage) -> &'a mut State {
    let name = found.id.to_string();
    let original = message(&name, 0).message;
    if (&found.headers, &found.body) != (&original.headers, &original.body) {
        examined.altered.push(name.clone());
    }
    examined.states.entry(name).or_default()
}
