//! Which messages of an endpoint its dispatcher holds.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use postdate_core::Dispatching;

use super::{claims_file::ClaimsFile, dispatch_lock::DispatchLock};
use crate::error::Result;

/// The messages of an endpoint that are held, by whoever has its dispatch lock.
///
/// The holder keeps them in memory and shows them to other processes in a file beside the database, which is void
/// while nobody has the lock. Held messages are added to it in the transaction that claims them; messages that
/// were given back may stand in it until just before the answer to that.
#[derive(Debug)]
pub(crate) struct InFlight {
    lock: DispatchLock,
    shown: ClaimsFile,
    next_claim: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// By the sequence numbers of messages.
    claims: HashMap<i64, Holder>,
    /// Whether the file says something else.
    unpublished: bool,
}

#[derive(Debug)]
struct Holder {
    claim: u64,
    is_published: bool,
}

/// What is held at this moment, by us or by others.
#[derive(Debug)]
pub(crate) struct View<'a>(Source<'a>);

#[derive(Debug)]
enum Source<'a> {
    Ours(&'a InFlight),
    Theirs(HashSet<i64>),
}

impl View<'_> {
    pub(crate) fn contains(&self, seq: i64) -> bool {
        match &self.0 {
            Source::Ours(in_flight) => in_flight.is_held(seq),
            Source::Theirs(held) => held.contains(&seq),
        }
    }

    /// A copy that outlives the moment.
    pub(crate) fn to_set(&self) -> HashSet<i64> {
        match &self.0 {
            Source::Ours(in_flight) => in_flight.held().claims.keys().copied().collect(),
            Source::Theirs(held) => held.clone(),
        }
    }
}

impl InFlight {
    /// For an endpoint in the database at `path`.
    pub(crate) fn new(path: &Path, endpoint: i64) -> Self {
        Self {
            lock: DispatchLock::new(path, endpoint),
            shown: ClaimsFile::new(path, endpoint),
            next_claim: AtomicU64::new(1),
            held: Mutex::default(),
        }
    }

    /// Takes the right to dispatch unless others have it. In a write transaction.
    pub(crate) fn take_lock(&self) -> Result<bool> {
        if self.lock.is_ours() {
            return Ok(true);
        }
        if !self.lock.take()? {
            return Ok(false);
        }
        // What a predecessor left in the file must not count as ours.
        if let Err(fault) = self.shown.clear() {
            self.lock.free();
            return Err(fault);
        }
        Ok(true)
    }

    pub(crate) fn has_lock(&self) -> bool {
        self.lock.is_ours()
    }

    /// Who has the right to dispatch. In a write transaction.
    pub(crate) fn dispatching(&self) -> Result<Dispatching> {
        Ok(match (self.lock.is_ours(), self.lock.is_theirs()?) {
            (true, _) => Dispatching::Here,
            (false, true) => Dispatching::Elsewhere,
            (false, false) => Dispatching::Nobody,
        })
    }

    pub(crate) fn free_lock(&self) {
        self.lock.free();
    }

    pub(crate) fn new_claim(&self) -> u64 {
        self.next_claim.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether we hold a message.
    pub(crate) fn is_held(&self, seq: i64) -> bool {
        self.held().claims.contains_key(&seq)
    }

    /// Notes that `claim` holds a message that nobody held. In a write transaction.
    pub(crate) fn hold(&self, seq: i64, claim: u64) {
        let mut held = self.held();
        held.claims.insert(seq, Holder { claim, is_published: false });
        held.unpublished = true;
    }

    /// Forgets messages that are gone. The file may keep them: nobody will ask for them.
    pub(crate) fn forget(&self, seqs: &[i64], claim: u64) {
        let mut held = self.held();
        for seq in seqs {
            if held.claims.get(seq).is_some_and(|holder| holder.claim == claim) {
                held.claims.remove(seq);
            }
        }
    }

    /// Gives messages back.
    pub(crate) fn give_back(&self, seqs: &[i64], claim: u64) {
        self.forget(seqs, claim);
        self.held().unpublished = true;
    }

    /// Gives back all that a claim holds and answers whether that was anything.
    pub(crate) fn give_all_back(&self, claim: u64) -> bool {
        let mut held = self.held();
        let before = held.claims.len();
        held.claims.retain(|_, holder| holder.claim != claim);
        let any = held.claims.len() < before;
        held.unpublished |= any;
        any
    }

    /// What is held, by us or by others. In a write transaction unless we have the lock.
    pub(crate) fn view(&self) -> Result<View<'_>> {
        let source = if self.lock.is_ours() {
            Source::Ours(self)
        } else if self.lock.is_theirs()? {
            Source::Theirs(self.shown.read()?)
        } else {
            Source::Theirs(HashSet::new())
        };
        Ok(View(source))
    }

    pub(crate) fn is_unpublished(&self) -> bool {
        self.held().unpublished && self.lock.is_ours()
    }

    /// Whether we hold something of which others cannot know.
    pub(crate) fn hides_claims(&self) -> bool {
        self.lock.is_ours() && self.held().claims.values().any(|holder| !holder.is_published)
    }

    /// Writes down for others what we hold. In a write transaction.
    pub(crate) fn publish(&self) -> Result<()> {
        let mut held = self.held();
        if !held.unpublished || !self.lock.is_ours() {
            return Ok(());
        }
        self.shown.write(held.claims.keys().copied())?;
        held.claims.values_mut().for_each(|holder| holder.is_published = true);
        held.unpublished = false;
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    fn two() -> (tempfile::TempDir, InFlight, InFlight) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        fs::write(&path, b"").unwrap();
        let (one, two) = (InFlight::new(&path, 1), InFlight::new(&path, 1));
        assert!(one.take_lock().unwrap());
        one.publish().unwrap();
        (directory, one, two)
    }

    #[test]
    fn others_see_what_is_held_and_what_was_given_back() {
        let (_directory, one, two) = two();
        for (seq, claim) in [(7, 1), (8, 1), (9, 2)] {
            one.hold(seq, claim);
        }
        one.publish().unwrap();
        assert_eq!(two.view().unwrap().to_set(), HashSet::from([7, 8, 9]));
        assert!(one.give_all_back(1));
        assert!(!one.give_all_back(1));
        one.publish().unwrap();
        assert_eq!(two.view().unwrap().to_set(), HashSet::from([9]));
    }

    #[test]
    fn a_claim_gives_back_only_its_own() {
        let (_directory, one, _two) = two();
        one.hold(7, 1);
        one.give_back(&[7], 2);
        assert!(one.view().unwrap().contains(7));
        one.give_back(&[7], 1);
        assert!(!one.view().unwrap().contains(7));
    }

    #[test]
    fn half_a_file_is_no_answer() {
        let (directory, one, two) = two();
        one.hold(7, 1);
        one.hold(8, 1);
        one.publish().unwrap();
        let file = OpenOptions::new().write(true).open(directory.path().join("x.db-claims-1")).unwrap();
        file.set_len(16).unwrap();
        assert_eq!(two.view().unwrap_err().kind(), postdate_core::StoreErrorKind::Unavailable);
    }

    #[test]
    fn what_a_crashed_holder_wrote_is_void() {
        let (_directory, one, two) = two();
        one.hold(7, 1);
        one.publish().unwrap();
        drop(one);
        assert!(!two.view().unwrap().contains(7), "nobody has the lock");
        assert!(two.take_lock().unwrap());
        two.publish().unwrap();
        assert_eq!(two.shown.read().unwrap(), HashSet::new(), "the successor starts afresh");
    }
}
