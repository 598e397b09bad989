//! Letting the power go off, and looking at what is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{BufRead, BufReader},
    num::NonZeroUsize,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};
use crash_tests::Chance;
use postdate::{
    Address, Backend as _, EndpointName, Filter, ListQuery, Queues as _, TransactionMode,
    sqlite::{Durability, Sqlite},
};

use crate::{
    child::{BILLING, ENDPOINT, body},
    island::Island,
};

const ALL: NonZeroUsize = NonZeroUsize::new(10_000_000).expect("not zero");

/// What was found after some rounds.
#[derive(Debug)]
pub(crate) struct Report {
    durability: Durability,
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
        let Self { durability, rounds, stored, taken, lost, wrong, damaged, seconds } = self;
        write!(
            f,
            "{durability:?}: {rounds} power failures, {stored} messages acknowledged, {taken} of them taken out; \
             {lost} lost, {wrong} doubled or altered, {damaged} files damaged; {seconds:.1} s"
        )
    }
}

/// Lets the power go off so many times. Each round has a file of its own every third time, and goes on with the last
/// one otherwise.
pub(crate) fn rounds(
    island: &mut Island,
    durability: Durability,
    rounds: u32,
    chance: &mut Chance,
) -> Result<Report> {
    let start = Instant::now();
    let mut report =
        Report { durability, rounds, stored: 0, taken: 0, lost: 0, wrong: 0, damaged: 0, seconds: 0.0 };
    let mut said = Said::default();
    let mut file = island.path();
    for round in 0..rounds {
        if round % 3 == 0 {
            file = island.path().join(format!("{durability:?}-{round}.db"));
            said = Said::default();
        }
        let acknowledgements = 40 + chance.below(400);
        let before = (said.stored.len(), said.taken.len());
        interrupt(island, &file, durability, round, acknowledgements, &mut said)?;
        report.stored += said.stored.len() - before.0;
        report.taken += said.taken.len() - before.1;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(found(&file)) {
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
    file: &Path,
    durability: Durability,
    round: u32,
    acknowledgements: usize,
    said: &mut Said,
) -> Result<()> {
    let durability = match durability {
        Durability::PowerLoss => "power-loss",
        Durability::ProcessCrash => "process-crash",
    };
    let mut child = Killed(
        Command::new(std::env::current_exe()?)
            .arg("child")
            .arg(file)
            .args([durability, &round.to_string()])
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
async fn found(file: &Path) -> Result<BTreeMap<String, (usize, bool)>> {
    let sqlite = Sqlite::open(file).await?;
    let endpoint = EndpointName::new(ENDPOINT)?;
    sqlite.set_up(&endpoint).await?;
    // Where all was lost there is no queue either.
    sqlite.queues().create(&Address::new(BILLING)?).await?;
    let store = sqlite.open(&endpoint, TransactionMode::TransactionScope).await?;
    let check = rusqlite::Connection::open(file)?;
    let answer: String = check.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    anyhow::ensure!(answer == "ok", "{answer}");
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
    for queued in sqlite.queues().browse(&Address::new(BILLING)?, 0, ALL).await? {
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
