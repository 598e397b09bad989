//! What queues should answer: told a call and its answer, the model refuses what no right queue would have said.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use postdate_core::{
    Address, DispatchErrorKind, OutgoingMessage, QueueStatus, QueuedMessage, Selection, StoreErrorKind,
};

/// An answer, or the kind of the error.
pub(super) type Answer<T> = Result<T, StoreErrorKind>;

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    queues: BTreeMap<Address, Queue>,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// In order.
    entries: Vec<Entry>,
    /// Every position that was ever seen.
    seen: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
struct Entry {
    message: OutgoingMessage,
    holder: Holder,
    /// What a queue says of a message when it is first seen there.
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    position: u64,
    enqueued: Timestamp,
    deliveries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    Claim(u64),
    /// A claim that was dropped: that others see it may take a moment.
    LettingGo,
}

/// What a claim does with what it holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settling<'a> {
    Complete,
    Abandon,
    MoveTo(&'a Address),
}

impl Model {
    pub(super) fn create(&mut self, queue: &Address, answer: &Answer<bool>) -> Result<()> {
        let is_new = !self.queues.contains_key(queue);
        self.queues.entry(queue.clone()).or_default();
        equal(answer, &Ok(is_new))
    }

    pub(super) fn send(
        &mut self,
        messages: &[OutgoingMessage],
        answers: &[Result<(), DispatchErrorKind>],
    ) -> Result<()> {
        let mut wanted = Vec::new();
        for message in messages {
            wanted.push(match self.queues.get_mut(&message.destination) {
                Some(queue) => {
                    queue.entries.push(Entry::new(message.clone()));
                    Ok(())
                }
                None => Err(DispatchErrorKind::NoDestination),
            });
        }
        equal(answers, &wanted[..])
    }

    pub(super) fn receive(
        &mut self,
        queue: &Address,
        selection: &Selection,
        claim: u64,
        answer: &Answer<Vec<QueuedMessage>>,
    ) -> Result<()> {
        let Some(queue) = self.queues.get_mut(queue) else { return no_such_queue(answer) };
        let Ok(received) = answer else { bail!("receiving was refused as {answer:?}") };
        for message in received {
            let Some(entry) = queue.at(message.position) else {
                bail!("received, but not there: {message:?}")
            };
            entry.is(message)?;
            ensure!(!matches!(entry.holder, Holder::Claim(_)), "received, but held: {message:?}");
            entry.holder = Holder::Claim(claim);
            entry.known.iter_mut().for_each(|known| known.deliveries += 1);
        }
        ensure!(received.is_sorted_by_key(|message| message.position), "out of order: {received:?}");
        let is_selected = |message: &OutgoingMessage| match selection {
            Selection::Next(_) => true,
            Selection::Ids(ids) => ids.contains(&message.id),
        };
        ensure!(received.iter().all(|message| is_selected(&message.message)), "not asked for: {received:?}");
        let (most, last) = match selection {
            Selection::Next(limit) => (limit.get(), received.last().map(|message| message.position)),
            Selection::Ids(_) => (usize::MAX, None),
        };
        ensure!(received.len() <= most, "{} received of {most}", received.len());
        for free in queue.entries.iter().filter(|entry| entry.holder == Holder::Nobody) {
            let was_passed_over = received.len() < most || free.position() < last;
            ensure!(!is_selected(&free.message) || !was_passed_over, "passed over: {free:?}");
        }
        Ok(())
    }

    pub(super) fn settle(
        &mut self,
        queue: &Address,
        claim: u64,
        positions: &[u64],
        settling: Settling<'_>,
        answer: &Answer<Vec<bool>>,
    ) -> Result<()> {
        if let Settling::MoveTo(to) = settling
            && !self.queues.contains_key(to)
        {
            return no_such_queue(answer);
        }
        let mut moved = Vec::new();
        let mut wanted = Vec::new();
        let Some(from) = self.queues.get_mut(queue) else { return no_such_queue(answer) };
        for position in positions {
            let held = from.at(*position).filter(|entry| entry.holder == Holder::Claim(claim));
            wanted.push(held.is_some());
            match (held, settling) {
                (None, _) => {}
                (Some(entry), Settling::Abandon) => entry.holder = Holder::Nobody,
                (Some(entry), Settling::Complete | Settling::MoveTo(_)) => {
                    moved.push(entry.message.clone());
                    from.entries.retain(|entry| entry.position() != Some(*position));
                }
            }
        }
        if let Settling::MoveTo(to) = settling {
            let target = self.queues.entry(to.clone()).or_default();
            target.entries.extend(
                moved
                    .into_iter()
                    .map(|message| Entry::new(OutgoingMessage { destination: to.clone(), ..message })),
            );
        }
        equal(answer, &Ok(wanted))
    }

    /// A claim was dropped.
    pub(super) fn let_go(&mut self, claim: u64) {
        let entries = self.queues.values_mut().flat_map(|queue| &mut queue.entries);
        for entry in entries.filter(|entry| entry.holder == Holder::Claim(claim)) {
            entry.holder = Holder::LettingGo;
        }
    }

    /// What has been let go and may be held still: from which queue, and which messages.
    pub(super) fn letting_go(&self) -> Option<(Address, Selection)> {
        self.queues.iter().find_map(|(name, queue)| {
            let going = queue.entries.iter().filter(|entry| entry.holder == Holder::LettingGo);
            let ids: Vec<_> = going.map(|entry| entry.message.id.clone()).collect();
            (!ids.is_empty()).then(|| (name.clone(), Selection::Ids(ids)))
        })
    }

    /// A look at the messages after a position. New ones are learnt to know by it.
    pub(super) fn browse(
        &mut self,
        queue: &Address,
        after: u64,
        limit: usize,
        answer: &Answer<Vec<QueuedMessage>>,
    ) -> Result<()> {
        let Some(queue) = self.queues.get_mut(queue) else { return no_such_queue(answer) };
        let Ok(shown) = answer else { bail!("browsing was refused as {answer:?}") };
        let is_after = |entry: &&mut Entry| entry.position().is_none_or(|position| position > after);
        let wanted: Vec<_> = queue.entries.iter_mut().filter(is_after).take(limit).collect();
        ensure!(shown.len() == wanted.len(), "{} are shown, not {}: {shown:?}", shown.len(), wanted.len());
        for (entry, shown) in wanted.into_iter().zip(shown) {
            if entry.known.is_none() {
                let is_new = queue.seen.last().is_none_or(|last| shown.position > *last);
                ensure!(is_new, "position {} was used before", shown.position);
                queue.seen.insert(shown.position);
                let QueuedMessage { position, enqueued, deliveries, .. } = *shown;
                entry.known = Some(Known { position, enqueued, deliveries });
            }
            entry.is(shown)?;
        }
        Ok(())
    }

    pub(super) fn purge(&mut self, queue: &Address, answer: &Answer<u64>) -> Result<()> {
        let Some(queue) = self.queues.get_mut(queue) else { return no_such_queue(answer) };
        let before = queue.entries.len();
        queue.entries.retain(|entry| entry.holder != Holder::Nobody);
        equal(answer, &Ok((before - queue.entries.len()) as u64))
    }

    /// A list of these queues.
    pub(super) fn list(&self, answer: &Answer<Vec<QueueStatus>>) -> Result<()> {
        let wanted = self.queues.iter().map(|(name, queue)| QueueStatus {
            name: name.clone(),
            depth: queue.entries.len() as u64,
            oldest: queue.entries.first().and_then(|entry| entry.known).map(|known| known.enqueued),
        });
        equal(answer, &Ok(wanted.collect()))
    }

    /// The queues in which something is that was not seen yet.
    pub(super) fn unseen(&self) -> Vec<Address> {
        let unseen = |queue: &Queue| queue.entries.iter().any(|entry| entry.known.is_none());
        self.queues.iter().filter(|(_, queue)| unseen(queue)).map(|(name, _)| name.clone()).collect()
    }

    /// All positions that were ever seen.
    pub(super) fn positions(&self) -> Vec<u64> {
        self.queues.values().flat_map(|queue| queue.seen.iter().copied()).collect()
    }

    /// A queue with something in it.
    pub(super) fn filled(&self) -> Option<Address> {
        let filled = self.queues.iter().find(|(_, queue)| !queue.entries.is_empty());
        filled.map(|(name, _)| name.clone())
    }
}

impl Queue {
    fn at(&mut self, position: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.position() == Some(position))
    }
}

impl Entry {
    fn new(message: OutgoingMessage) -> Self {
        Self { message, holder: Holder::Nobody, known: None }
    }

    fn position(&self) -> Option<u64> {
        self.known.map(|known| known.position)
    }

    /// Whether this is what is shown.
    fn is(&self, shown: &QueuedMessage) -> Result<()> {
        let Some(Known { position, enqueued, deliveries }) = self.known else { return Ok(()) };
        let wanted = QueuedMessage { message: self.message.clone(), position, enqueued, deliveries };
        ensure!(*shown == wanted, "it is {shown:?}, not {wanted:?}");
        Ok(())
    }
}

fn equal<T: Debug + PartialEq + ?Sized>(answer: &T, wanted: &T) -> Result<()> {
    ensure!(answer == wanted, "the answer was {answer:?}, not {wanted:?}");
    Ok(())
}

fn no_such_queue<T: Debug>(answer: &Answer<T>) -> Result<()> {
    let is_refused = matches!(answer, Err(StoreErrorKind::NoSuchQueue));
    ensure!(is_refused, "there is no such queue, and the answer was {answer:?}");
    Ok(())
}
