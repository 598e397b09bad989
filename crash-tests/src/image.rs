//! The files as they may be after the power went off.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use crate::{
    Chance,
    log::{Entry, Inode, Log},
};

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What happens to what no sync has made safe.
#[derive(Clone, Copy, Debug)]
pub enum Weather {
    /// Each sector is there in so many of a thousand cases, whatever the others are.
    Sectors(usize),
    /// Everything up to some moment is there and nothing later, as on a disk that keeps the order.
    InOrder,
}

impl Weather {
    /// One of all kinds.
    pub fn of(chance: &mut Chance) -> Self {
        match chance.below(6) {
            0 => Self::InOrder,
            rate => Self::Sectors([0, 300, 500, 800, 1_000][rate - 1]),
        }
    }
}

/// The contents of files by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image(pub BTreeMap<String, Vec<u8>>);

impl Image {
    /// The files as they may be when the power goes off after the first `until` entries of a log. What a sync has
    /// covered is there; the rest is a matter of chance and weather.
    pub fn after(log: &Log, until: usize, weather: Weather, chance: &mut Chance) -> Self {
        let entries = &log.entries[..until];
        let safe = safe(entries);
        let last_in_order = chance.below(until + 1);
        let mut survives = |number: usize| match weather {
            Weather::Sectors(rate) => chance.permille(rate),
            Weather::InOrder => number < last_in_order,
        };
        let mut contents = log.contents.clone();
        for (number, entry) in entries.iter().enumerate() {
            let mut is_there = || safe.contains(&number) || survives(number);
            match entry {
                Entry::Write { inode, offset, data } => {
                    let content = contents.entry(*inode).or_default();
                    for (at, sector) in sectors(*offset, data) {
                        if is_there() {
                            put(content, at, sector);
                        }
                    }
                }
                Entry::Truncate { inode, size } if is_there() => {
                    contents.entry(*inode).or_default().resize(index(*size), 0);
                }
                _ => {}
            }
        }
        let names = names(log, entries, &mut survives);
        Self(
            names
                .into_iter()
                .map(|(name, inode)| (name, contents.remove(&inode).unwrap_or_default()))
                .collect(),
        )
    }

    /// Puts the files into a directory.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        self.0.iter().try_for_each(|(name, content)| fs::write(directory.join(name), content))
    }
}

/// The numbers of those entries that the next sync of their file has made safe. After one that failed nothing tries
/// again what was written before it.
fn safe(entries: &[Entry]) -> BTreeSet<usize> {
    let mut next_sync_works: BTreeMap<Inode, bool> = BTreeMap::new();
    let mut safe = BTreeSet::new();
    for (number, entry) in entries.iter().enumerate().rev() {
        match entry {
            Entry::Sync(inode) => {
                next_sync_works.insert(*inode, true);
            }
            Entry::FailedSync(inode) => {
                next_sync_works.insert(*inode, false);
            }
            Entry::Write { inode, .. } | Entry::Truncate { inode, .. }
                if next_sync_works.get(inode) == Some(&true) =>
            {
                safe.insert(number);
            }
            _ => {}
        }
    }
    safe
}

/// Which files there are. Of what happened to a name since the directory was safe, the later does not survive without
/// the earlier.
fn names(log: &Log, entries: &[Entry], survives: &mut impl FnMut(usize) -> bool) -> BTreeMap<String, Inode> {
    let safe = entries.iter().rposition(|entry| matches!(entry, Entry::SyncDirectory)).unwrap_or(0);
    let (mut names, mut stuck) = (log.names.clone(), BTreeSet::new());
    for (number, entry) in entries.iter().enumerate() {
        let (name, inode) = match entry {
            Entry::Create { name, inode } => (name, Some(*inode)),
            Entry::Delete { name } => (name, None),
            _ => continue,
        };
        if number >= safe && (stuck.contains(name) || !survives(number)) {
            stuck.insert(name);
            continue;
        }
        match inode {
            Some(inode) => names.insert(name.clone(), inode),
            None => names.remove(name),
        };
    }
    names
}

/// The parts of a write that fall into one sector each.
fn sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (mut at, mut rest) = (index(offset), data);
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
        let sector = (at, part);
        (at, rest) = (at + part.len(), after);
        (!part.is_empty()).then_some(sector)
    })
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

/// A place in a file that was in memory.
fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Inode = Inode(0);

    fn write(offset: u64, byte: u8, length: usize) -> Entry {
        Entry::Write { inode: FILE, offset, data: vec![byte; length] }
    }

    fn log(entries: Vec<Entry>) -> Log {
        let mut log = Log::default();
        log.names.insert("x.db".to_owned(), FILE);
        log.entries = entries;
        log
    }

    fn content(entries: Vec<Entry>, weather: Weather, seed: u64) -> Vec<u8> {
        let log = log(entries);
        let mut image = Image::after(&log, log.entries.len(), weather, &mut Chance::new(seed));
        image.0.remove("x.db").unwrap()
    }

    #[test]
    fn what_was_synced_is_there_and_the_rest_is_not_when_nothing_survives() {
        let entries = vec![write(0, 1, 100), Entry::Sync(FILE), write(50, 2, 100)];
        assert_eq!(content(entries.clone(), Weather::Sectors(0), 1), vec![1; 100]);
        assert_eq!(content(entries, Weather::Sectors(1_000), 1), [vec![1; 50], vec![2; 100]].concat());
    }

    #[test]
    fn a_later_sync_does_not_mend_one_that_failed() {
        let entries = vec![write(0, 1, 10), Entry::FailedSync(FILE), write(10, 2, 10), Entry::Sync(FILE)];
        assert_eq!(content(entries.clone(), Weather::Sectors(0), 1), [vec![0; 10], vec![2; 10]].concat());
        let again = [entries, vec![write(0, 3, 10), Entry::Sync(FILE)]].concat();
        assert_eq!(content(again, Weather::Sectors(0), 1), [vec![3; 10], vec![2; 10]].concat());
    }

    #[test]
    fn a_write_is_torn_at_the_sectors_of_the_file() {
        let mut torn = BTreeSet::new();
        for seed in 0..50 {
            let content = content(vec![write(500, 1, 600)], Weather::Sectors(500), seed);
            let there = |at: usize| content.get(at) == Some(&1);
            for (first, last) in [(500, 511), (512, 1_023), (1_024, 1_099)] {
                assert_eq!(there(first), there(last), "torn within a sector");
            }
            torn.insert([there(500), there(512), there(1_024)]);
        }
        assert_eq!(torn.len(), 8, "every subset of three sectors");
    }

    #[test]
    fn in_order_nothing_is_there_without_what_came_before() {
        for seed in 0..50 {
            let entries = (0..10).map(|place| write(place, 1, 1)).collect();
            let content = content(entries, Weather::InOrder, seed);
            assert!(content.iter().all(|byte| *byte == 1), "{content:?}");
        }
    }

    #[test]
    fn a_file_that_was_deleted_may_be_back_until_the_directory_is_synced() {
        let delete = Entry::Delete { name: "x.db".to_owned() };
        let files = |entries: Vec<Entry>, seed| {
            let log = log(entries);
            let mut chance = Chance::new(seed);
            Image::after(&log, log.entries.len(), Weather::Sectors(500), &mut chance).0.len()
        };
        let found: BTreeSet<_> = (0..20).map(|seed| files(vec![delete.clone()], seed)).collect();
        assert_eq!(found, BTreeSet::from([0, 1]));
        assert!((0..20).all(|seed| files(vec![delete.clone(), Entry::SyncDirectory], seed) == 0));
    }
}
