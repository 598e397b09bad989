//! Letting the power go off, and looking at what is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{BufRead, BufReader},
    num::NonZeroUsize,
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};
use crash_tests::Chance;
use postdate::{Address, EndpointName, Filter, ListQuery, TransactionMode};

use crate::{
    child::{BILLING, ENDPOINT, body},
    island::Island,
    kind::{Kind, Store, connect},
};

const ALL: NonZeroUsize = NonZeroUsize::new(10_000_000).expect("not zero");

/// What was found after some rounds.
#[derive(Debug)]
pub(crate) struct Report {
    kind: Kind,
    rounds: u32,
    stored: usize,
    taken: usize,
    lost: usize,
    /// Messages that are there twice, or again after they were taken out, or with another body.
    wrong: usize,
    damaged: usize,
    seconds: f64,
}

/// What a child said.
#[derive(Debug, Default)]
struct Said {
    stored: BTreeSet<String>,
    taking: BTreeSet<String>,
    taken: BTreeSet<String>,
}

impl Report {
    pub(crate) fn is_sound(&self) -> bool {
        self.lost + self.wrong + self.damaged == 0 && self.stored > 0 && self.taken > 0
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, rounds, stored, taken, lost, wrong, damaged, seconds } = self;
        write!(
            f,
            "{kind:?}: {rounds} power failures, {stored} messages acknowledged, {taken} of them taken out; \
             {lost} lost, {wrong} doubled or altered, {damaged} stores damaged; {seconds:.1} s"
        )
    }
}

/// Lets the power go off so many times. Every third time the store is a new one, otherwise the one of before.
pub(crate) fn rounds(island: &mut Island, kind: Kind, rounds: u32, chance: &mut Chance) -> Result<Report> {
    let start = Instant::now();
    let mut report =
        Report { kind, rounds, stored: 0, taken: 0, lost: 0, wrong: 0, damaged: 0, seconds: 0.0 };
    let mut said = Said::default();
    let mut current = None;
    for round in 0..rounds {
        let store = match &mut current {
            Some(store) if round % 3 != 0 => store,
            _ => {
                said = Said::default();
                current.insert(kind.start(island, &format!("{round}"))?)
            }
        };
        let acknowledgements = 40 + chance.below(400);
        let before = (said.stored.len(), said.taken.len());
        interrupt(island, store, round, acknowledgements, &mut said)?;
        report.stored += said.stored.len() - before.0;
        report.taken += said.taken.len() - before.1;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match store.recover().and_then(|()| runtime.block_on(found(store))) {
            Ok(found) => {
                judge(&mut said, &found, &mut report);
            }
            Err(error) => {
                eprintln!("round {round}: {error:#}");
                report.damaged += 1;
            }
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Starts a child and lets the power go off when it has acknowledged enough.
fn interrupt(
    island: &mut Island,
    store: &mut Store,
    round: u32,
    acknowledgements: usize,
    said: &mut Said,
) -> Result<()> {
    let mut child = Killed(
        Command::new(std::env::current_exe()?)
            .args(["child", &store.url(), &round.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let output = child.0.stdout.take().context("the child has no output")?;
    let mut lines = BufReader::new(output).lines();
    let enough = said.stored.len() + acknowledgements;
    while said.stored.len() < enough {
        said.hear(&lines.next().context("the child ended by itself")??);
    }
    island.power_off()?;
    // Whatever it says from now on it may have said after the power was off; only what it had begun counts.
    child.0.kill()?;
    child.0.wait()?;
    store.die()?;
    for line in lines {
        if let Some(id) = line?.strip_prefix("taking ") {
            said.taking.insert(id.to_owned());
        }
    }
    island.power_on()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be dead already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Said {
    fn hear(&mut self, line: &str) {
        let Some((word, id)) = line.split_once(' ') else { return };
        let ids = match word {
            "stored" => &mut self.stored,
            "taking" => &mut self.taking,
            _ => &mut self.taken,
        };
        ids.insert(id.to_owned());
    }
}

/// How often each message is in the store or in the queue, and whether it is as it was.
async fn found(store: &Store) -> Result<BTreeMap<String, (usize, bool)>> {
    let (backend, queues) = connect(&store.url()).await?;
    let endpoint = EndpointName::new(ENDPOINT)?;
    backend.set_up(&endpoint).await?;
    // Where all was lost there is no queue either.
    queues.create(&Address::new(BILLING)?).await?;
    store.check()?;
    let store = backend.open(&endpoint, TransactionMode::TransactionScope).await?;
    let mut found: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    let mut note = |id: &str, content: &[u8]| {
        let (times, is_whole) = found.entry(id.to_owned()).or_insert((0, true));
        *times += 1;
        *is_whole &= content == body(id);
    };
    for summary in store.list(&ListQuery::new(Filter::default(), ALL)).await?.messages {
        let stored = store.get(&summary.id).await?.context("what is listed is not there")?;
        note(summary.id.as_str(), &stored.message.message.body);
    }
    for queued in queues.browse(&Address::new(BILLING)?, 0, ALL).await? {
        note(queued.message.id.as_str(), &queued.message.body);
    }
    Ok(found)
}

/// Compares what the child said with what is there. What is lost is not looked for again.
fn judge(said: &mut Said, found: &BTreeMap<String, (usize, bool)>, report: &mut Report) {
    report.wrong +=
        found.iter().filter(|(id, (times, whole))| *times > 1 || !whole || said.taken.contains(*id)).count();
    let is_lost = |id: &String| !found.contains_key(id) && !said.taking.contains(id);
    let lost: Vec<String> = said.stored.iter().filter(|id| is_lost(id)).cloned().collect();
    report.lost += lost.len();
    for id in lost {
        said.stored.remove(&id);
    }
}
