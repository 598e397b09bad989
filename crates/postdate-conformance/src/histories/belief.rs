//! What may be, after calls of which only the store knows the order.

use anyhow::{Result, bail};

use super::{
    event::Event,
    model::{Company, Model},
};

/// So many states are enough to tell a wrong answer by, and few enough to be quick.
const MANY: usize = 10;

/// The states that an endpoint may be in, none of them twice. Later answers show which it is.
#[derive(Clone, Debug)]
pub(super) struct Belief(Vec<Model>);

impl Belief {
    pub(super) fn new(model: Model) -> Self {
        Self(vec![model])
    }

    /// One of the states: a listing leaves only those that are alike in what can be seen.
    pub(super) fn model(&self) -> &Model {
        self.0.first().expect("a belief that nothing can be is refused when it is formed")
    }

    /// Whether no more calls should overlap before it is clearer what is so.
    pub(super) fn is_vague(&self) -> bool {
        self.0.len() > MANY
    }

    /// Takes for true what was answered while nothing else was going on.
    pub(super) fn accept(&mut self, event: &Event) -> Result<()> {
        self.keep(|model| model.accept(event, Company::Alone))
    }

    /// Takes for true what was answered to calls that overlapped: they happened in some order.
    pub(super) fn accept_all(&mut self, events: &[Event]) -> Result<()> {
        match events {
            [] => return Ok(()),
            [event] => return self.accept(event),
            _ => {}
        }
        let company = Company::Overlapping(events);
        let rest: Vec<_> = events.iter().collect();
        let mut possible = Vec::new();
        self.0.iter().for_each(|model| all_orders(model, &rest, company, &mut possible));
        if possible.is_empty() {
            let mut model = self.model().clone();
            let in_turn = events.iter().try_for_each(|event| model.accept(event, company));
            let why = in_turn.err().map(|why| format!("; in this one {why:#}")).unwrap_or_default();
            bail!("in no order can the answers be {events:?}{why}");
        }
        self.0 = possible;
        Ok(())
    }

    /// The step is over.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.keep(Model::settle)
    }

    /// Gives up the states that cannot be, and fails if that was the last.
    fn keep(&mut self, mut can_be: impl FnMut(&mut Model) -> Result<()>) -> Result<()> {
        let mut why = None;
        let mut possible = Vec::new();
        for mut model in self.0.drain(..) {
            match can_be(&mut model) {
                Ok(()) if possible.contains(&model) => {}
                Ok(()) => possible.push(model),
                Err(error) => why = why.or(Some(error)),
            }
        }
        self.0 = possible;
        match why {
            Some(why) if self.0.is_empty() => Err(why),
            _ => Ok(()),
        }
    }
}

fn all_orders(model: &Model, rest: &[&Event], company: Company<'_>, possible: &mut Vec<Model>) {
    if rest.is_empty() {
        if !possible.contains(model) {
            possible.push(model.clone());
        }
        return;
    }
    for first in 0..rest.len() {
        let mut next = model.clone();
        if next.accept(rest[first], company).is_ok() {
            let mut others = rest.to_vec();
            others.remove(first);
            all_orders(&next, &others, company, possible);
        }
    }
}
