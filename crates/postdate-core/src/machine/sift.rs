//! Finding the messages that a store refuses among those that it takes.

use std::ops::Range;

/// Stores a batch whole and, where that is refused, in halves, so that a message which is refused is alone with it:
/// one in a thousand costs twenty calls. What stands first is stored first.
///
/// A failure may be the message's fault or the store's; which, is shown by what becomes of others. So messages that
/// failed before and are in doubt come last, and only if the store took one of the others.
#[derive(Debug)]
pub(crate) struct Sift<E> {
    /// Not stored yet; the last is next.
    todo: Vec<Range<usize>>,
    /// From here on they are in doubt, and wait for another to be stored.
    doubted: usize,
    stored: Vec<usize>,
    refused: Vec<(usize, E)>,
    /// Alone and not stored, by whose fault is not known.
    suspects: Vec<(usize, E)>,
    away: bool,
}

/// What came of storing some messages together.
#[derive(Debug)]
pub(crate) enum Attempt<E> {
    /// All are stored.
    Stored,
    /// One of them is to blame.
    Refused(E),
    /// One of them or the store is to blame.
    Unclear(E),
    /// The store is to blame.
    Away,
}

/// A batch, sifted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sifted<E> {
    pub stored: Vec<usize>,
    pub refused: Vec<(usize, E)>,
    /// Not stored, and not by the fault of any of them, as far as is known.
    pub left: Vec<usize>,
    /// What befell one of those while the store took none at all.
    pub doubt: Option<E>,
}

impl<E> Sift<E> {
    /// A batch of new messages, followed by some that are in doubt. If there are no others, the first of these is
    /// tried again.
    pub(crate) fn new(fresh: usize, in_doubt: usize) -> Self {
        let doubted = fresh.max(in_doubt.min(1));
        let parts = [doubted..fresh + in_doubt, 0..doubted];
        Self {
            todo: parts.into_iter().filter(|part| !part.is_empty()).collect(),
            doubted,
            stored: Vec::new(),
            refused: Vec::new(),
            suspects: Vec::new(),
            away: false,
        }
    }

    /// What to store together next.
    pub(crate) fn next(&self) -> Option<Range<usize>> {
        let waits = |range: &Range<usize>| range.start >= self.doubted && self.stored.is_empty();
        self.todo.last().filter(|range| !self.away && !waits(range)).cloned()
    }

    /// Takes note of what came of the attempt that was next.
    pub(crate) fn note(&mut self, attempt: Attempt<E>) {
        let (Some(range), false) = (self.todo.pop(), self.away) else { return };
        let middle = range.start + range.len() / 2;
        match attempt {
            Attempt::Stored => self.stored.extend(range),
            Attempt::Refused(error) if range.len() == 1 => self.refused.push((range.start, error)),
            Attempt::Unclear(error) if range.len() == 1 => self.suspects.push((range.start, error)),
            Attempt::Refused(_) | Attempt::Unclear(_) => {
                self.todo.extend([middle..range.end, range.start..middle])
            }
            Attempt::Away => {
                self.away = true;
                self.todo.push(range);
            }
        }
    }

    /// Ends it, done or not. A store that took others of the batch and is there still clears itself of suspicion.
    pub(crate) fn finish(self) -> Sifted<E> {
        let Self { todo, doubted: _, stored, mut refused, suspects, away } = self;
        let mut left: Vec<usize> = todo.into_iter().flatten().collect();
        let mut doubt = None;
        if away || stored.is_empty() {
            for (place, error) in suspects {
                left.push(place);
                doubt = Some(error).filter(|_| !away);
            }
        } else {
            refused.extend(suspects);
        }
        refused.sort_unstable_by_key(|(place, _)| *place);
        left.sort_unstable();
        Sifted { stored, refused, left, doubt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sifts a batch in a store that answers so; gives the number of calls too.
    fn sift(fresh: usize, store: impl Fn(Range<usize>) -> Attempt<()>) -> (Sifted<()>, usize) {
        sift_in_doubt(fresh, 0, store)
    }

    fn sift_in_doubt(
        fresh: usize,
        in_doubt: usize,
        store: impl Fn(Range<usize>) -> Attempt<()>,
    ) -> (Sifted<()>, usize) {
        let (mut sift, mut calls) = (Sift::new(fresh, in_doubt), 0);
        while let Some(range) = sift.next() {
            calls += 1;
            sift.note(store(range));
        }
        (sift.finish(), calls)
    }

    fn refuses(bad: &[usize]) -> impl Fn(Range<usize>) -> Attempt<()> {
        move |range| {
            if bad.iter().any(|place| range.contains(place)) { Attempt::Refused(()) } else { Attempt::Stored }
        }
    }

    #[test]
    fn a_batch_that_is_taken_is_one_call() {
        let (sifted, calls) = sift(500, refuses(&[]));
        assert_eq!((sifted.stored, calls), ((0..500).collect(), 1));
        assert_eq!(sift(0, refuses(&[])).1, 0, "and none is none");
    }

    #[test]
    fn each_refused_message_is_alone_and_the_others_are_stored_in_order() {
        for bad in [&[0][..], &[499], &[250], &[0, 1, 2, 499], &[7, 8, 300]] {
            let (sifted, calls) = sift(500, refuses(bad));
            assert_eq!(sifted.refused.iter().map(|(place, ())| *place).collect::<Vec<_>>(), bad);
            assert_eq!(sifted.stored, (0..500).filter(|place| !bad.contains(place)).collect::<Vec<_>>());
            assert!(sifted.left.is_empty() && calls <= 20 * bad.len(), "{calls} calls for {bad:?}");
        }
    }

    #[test]
    fn a_store_that_is_away_is_called_no_more_and_blames_nobody() {
        let (sifted, calls) = sift(100, |_| Attempt::Away);
        assert_eq!((sifted.left, calls), ((0..100).collect(), 1));
        assert!(sifted.stored.is_empty() && sifted.refused.is_empty());
    }

    #[test]
    fn what_was_stored_and_refused_before_the_store_went_away_stays_so() {
        let bad = refuses(&[0]);
        let (sifted, _) = sift(4, |range| if range.start >= 2 { Attempt::Away } else { bad(range) });
        assert_eq!(sifted, Sifted { stored: vec![1], refused: vec![(0, ())], left: vec![2, 3], doubt: None });
    }

    #[test]
    fn who_is_to_blame_is_found_by_what_becomes_of_the_others() {
        let breaks_at = |bad: usize| {
            move |range: Range<usize>| {
                if range.contains(&bad) { Attempt::Unclear(()) } else { Attempt::Stored }
            }
        };
        assert_eq!(sift(8, breaks_at(3)).0.refused, [(3, ())]);
        let alone = sift(1, breaks_at(0)).0;
        assert_eq!((alone.left, alone.doubt), (vec![0], Some(())), "nothing speaks for the store");
        let (sifted, calls) = sift(8, |_| Attempt::Unclear(()));
        assert_eq!((sifted.left, calls), ((0..8).collect(), 15));
        let (sifted, _) = sift(4, |range| match range.start {
            0 if range.len() == 1 => Attempt::Stored,
            1 | 0 => Attempt::Unclear(()),
            _ => Attempt::Away,
        });
        assert_eq!(
            (sifted.left, sifted.doubt),
            (vec![1, 2, 3], None),
            "a store that goes away may have failed before"
        );
    }

    #[test]
    fn what_is_in_doubt_is_tried_when_the_store_has_taken_another() {
        let breaks_at = |bad: &'static [usize]| {
            move |range: Range<usize>| {
                if bad.iter().any(|bad| range.contains(bad)) { Attempt::Unclear(()) } else { Attempt::Stored }
            }
        };
        let (sifted, _) = sift_in_doubt(1, 4, breaks_at(&[2]));
        assert_eq!((sifted.stored, sifted.refused), (vec![0, 1, 3, 4], vec![(2, ())]));
        let (sifted, calls) = sift_in_doubt(1, 4, breaks_at(&[0, 2]));
        assert_eq!(
            (sifted.left, sifted.doubt, calls),
            (vec![0, 1, 2, 3, 4], Some(()), 1),
            "one call and no more"
        );
        let (sifted, calls) = sift_in_doubt(0, 3, breaks_at(&[0]));
        assert_eq!((sifted.left, calls), (vec![0, 1, 2], 1), "the first of those in doubt finds out");
        assert_eq!(sift_in_doubt(0, 3, breaks_at(&[2])).0.refused, [(2, ())]);
    }
}
