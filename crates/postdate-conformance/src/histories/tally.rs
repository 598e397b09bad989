//! How often what happened.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
};

/// Histories in which nothing happens prove nothing: so it is counted what does.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Notes each answer.
    pub(super) fn note_each(&mut self, answers: &[bool], yes: &'static str, no: &'static str) {
        answers.iter().for_each(|answer| self.note(if *answer { yes } else { no }));
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// Those of `wanted` that never happened.
    pub(super) fn missing<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        wanted.iter().copied().filter(|what| !self.0.contains_key(what)).collect()
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(what, times)| format!("{times} {what}")).collect();
        f.write_str(&counts.join(", "))
    }
}
