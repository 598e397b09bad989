//! The power goes off at any moment of a busy time.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
};

use crash_tests::{Chance, Entry, Image, Log, Weather};
use postdate::sqlite::Durability;

use crate::{
    examine::{Examined, examine},
    ledger::{Finding, Ledger},
    place::{Place, many, seed},
    world::World,
};

/// What came of the images of a log.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) images: usize,
    pub(crate) second_crashes: usize,
    /// Of the images, those that cannot be used or that SQLite finds fault with.
    pub(crate) damaged: usize,
    /// Those that have lost something.
    pub(crate) losing: usize,
    /// Those with something else wrong.
    pub(crate) wrong: usize,
    pub(crate) lost_messages: usize,
    /// The first that is not sound, and what is wrong with it.
    first: Option<(Image, String)>,
}

impl Tally {
    /// Keeps the first image that is not sound for whoever looks for the fault, and fails.
    pub(crate) fn assert_sound(&self, what: impl Debug) {
        if let Some((image, wrong)) = &self.first {
            let kept = Place::keep(image);
            panic!("{what:?}: {wrong}; kept in {}", kept.display());
        }
    }

    fn take_down(&mut self, examined: &Examined) {
        self.images += 1;
        self.damaged += usize::from(examined.damage.is_some());
        let is_lost = |finding: &&Finding| matches!(finding, Finding::Lost(_));
        let lost = examined.findings.iter().filter(is_lost).count();
        self.losing += usize::from(lost > 0);
        self.lost_messages += lost;
        self.wrong += usize::from(lost < examined.findings.len() || !examined.altered.is_empty());
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { images, second_crashes, damaged, losing, lost_messages, wrong, .. } = self;
        write!(
            f,
            "{images} images, {second_crashes} of them crashed a second time: {damaged} damaged, {losing} lost \
             {lost_messages} messages, {wrong} otherwise wrong"
        )
    }
}

/// What happened to a disk and what should be on it.
pub(crate) struct Recording {
    pub(crate) log: Log,
    pub(crate) ledger: Ledger,
}

impl Recording {
    /// Of a place that was used.
    pub(crate) fn of(place: &Place, ledger: Ledger) -> Self {
        Self { log: place.disk.log(), ledger }
    }

    /// Two busy times, from the empty folder on.
    pub(crate) async fn of_busy_times(place: &Place, durability: Durability, chance: &mut Chance) -> Self {
        let ledger = Ledger::new(&place.disk, BTreeMap::new());
        for prefix in ["x", "y"] {
            let world = World::open(&place.path(), durability).await.unwrap();
            world.be_busy(&place.path(), &ledger, prefix, chance).await;
            drop(world);
            place.wait_until_closed();
        }
        Self::of(place, ledger)
    }

    /// Lets the power go off at a moment of this recording, perhaps a second time afterwards.
    pub(crate) async fn crash(&self, until: usize, weather: Weather, chance: &mut Chance, tally: &mut Tally) {
        let image = Image::after(&self.log, until, weather, chance);
        let place = Place::after_crash(&image, chance);
        let (examined, world) = examine(&place.path(), &self.ledger.expected(self.log.marks(until))).await;
        tally.take_down(&examined);
        if !examined.is_sound() && tally.first.is_none() {
            let Examined { damage, findings, altered, .. } = &examined;
            let entries = self.log.entries().len();
            let wrong =
                format!("entry {until} of {entries}, {weather:?}: {damage:?} {findings:?} {altered:?}");
            tally.first = Some((image, wrong));
        }
        if let Some(world) = world
            && examined.is_sound()
            && chance.permille(200)
        {
            tally.second_crashes += 1;
            let ledger = Ledger::new(&place.disk, examined.states);
            if chance.permille(500) {
                world.be_busy(&place.path(), &ledger, &format!("z{}", tally.second_crashes), chance).await;
            }
            drop(world);
            place.wait_until_closed();
            let again = Self::of(&place, ledger);
            let until = chance.below(again.log.entries().len() + 1);
            Box::pin(again.crash(until, weather, chance, tally)).await;
        }
        place.wait_until_closed();
    }

    /// The power goes off at so many moments.
    pub(crate) async fn crash_often(&self, count: usize, chance: &mut Chance) -> Tally {
        let mut tally = Tally::default();
        while tally.images < count {
            let (until, weather) = (chance.below(self.log.entries().len() + 1), Weather::of(chance));
            self.crash(until, weather, chance, &mut tally).await;
        }
        tally
    }
}

/// Whether this was a workload that is worth its crashes.
fn check_variety(log: &Log) {
    let number = |is: fn(&Entry) -> bool| log.entries().iter().filter(|entry| is(entry)).count();
    assert!(number(|entry| matches!(entry, Entry::Sync(_))) > 40, "syncs");
    assert!(number(|entry| matches!(entry, Entry::Write { .. })) > 300, "writes");
    let made = |end: &str| {
        let makes = |entry: &&Entry| matches!(entry, Entry::Create { name, .. } if name.ends_with(end));
        log.entries().iter().filter(makes).count()
    };
    // Connections that close at the same moment take each other for still open, and leave the log to whoever opens next.
    assert_eq!(
        (made(".db"), made("-journal").min(1), made("-wal").clamp(1, 2)),
        (1, 1, made("-wal")),
        "files"
    );
}

async fn nothing_is_lost(part: u64) {
    let seed = seed() + part;
    let mut chance = Chance::new(seed);
    let place = Place::new();
    let recording = Recording::of_busy_times(&place, Durability::PowerLoss, &mut chance).await;
    check_variety(&recording.log);
    let tally = recording.crash_often(many(200), &mut chance).await;
    println!("{tally}");
    tally.assert_sound(format_args!("POSTDATE_CRASH_SEED={seed}"));
    assert!(tally.second_crashes > 0);
}

#[tokio::test]
async fn s1_s14_s16_nothing_acknowledged_is_lost_when_the_power_goes_off() {
    nothing_is_lost(0).await;
}

#[tokio::test]
async fn s1_s14_s16_nothing_acknowledged_is_lost_when_the_power_goes_off_in_another_run() {
    nothing_is_lost(1).await;
}
