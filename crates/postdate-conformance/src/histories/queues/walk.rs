//! Walking through a history with queues and the model side by side.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use postdate_core::{
    Address, Due, Message, MessageId, OutgoingMessage, Queues, ReceiveClaim, Receiver, Selection, StoreError,
    StoreErrorKind,
};
use tokio::time::{Instant, sleep};

use super::{
    super::{
        search::{AtStep, TooSlow},
        tally::Tally,
    },
    history::{History, Pick, QUEUES, Step},
    model::{Model, Settling},
};
use crate::{
    bench::Bench,
    make::{address, limit},
};

const PATIENCE: Duration = Duration::from_secs(3);
const MOMENT: Duration = Duration::from_millis(1);
const NEARLY_OVER: Duration = Duration::from_millis(200);

/// More than there are.
const ALL: usize = 1_000;

struct Open {
    number: u64,
    handle: usize,
    queue: Address,
    given: Vec<u64>,
    claim: Box<dyn ReceiveClaim>,
}

pub(super) struct Walker {
    bench: Bench,
    handles: Vec<Arc<dyn Queues>>,
    receivers: BTreeMap<(usize, Address), Arc<dyn Receiver>>,
    /// What all our queues are called at first.
    prefix: String,
    claims: Vec<Open>,
    last_claim: u64,
    begin: Instant,
    model: Model,
    tally: Tally,
}

impl Walker {
    /// Begins with queues that nobody else uses; one of them is not there yet.
    pub(super) async fn open(bench: Bench, handles: &[Arc<dyn Queues>], walk: u64) -> Result<Self> {
        let mut walker = Self {
            bench,
            handles: handles.to_vec(),
            receivers: BTreeMap::new(),
            prefix: format!("history {walk}-"),
            claims: Vec::new(),
            last_claim: 0,
            begin: Instant::now(),
            model: Model::default(),
            tally: Tally::default(),
        };
        for queue in 0..QUEUES - 1 {
            walker.take(&Step::Create { handle: 0, queue }).await?;
        }
        Ok(walker)
    }

    /// Walks to the end, and takes everything that is left out of the queues.
    pub(super) async fn walk(mut self, history: &History) -> Result<Tally> {
        match self.walk_on(history).await {
            Err(_) if self.is_too_slow() => Err(TooSlow.into()),
            walked => walked.map(|()| self.tally),
        }
    }

    async fn walk_on(&mut self, history: &History) -> Result<()> {
        for (i, step) in history.0.iter().enumerate() {
            self.take(step).await.context(AtStep(i + 1))?;
            self.see_what_is_new().await.context(AtStep(i + 1))?;
            self.tally.note("steps");
        }
        self.drain().await.context("taking out what is left in the end")
    }

    fn is_too_slow(&self) -> bool {
        self.bench.lease_term().is_some_and(|term| self.begin.elapsed() + NEARLY_OVER > term)
    }

    async fn take(&mut self, step: &Step) -> Result<()> {
        self.tally.note("calls");
        match step {
            Step::Create { handle, queue } => {
                let queue = self.queue(*queue);
                let answer = self.handles[*handle].create(&queue).await.map_err(kind);
                self.tally.note(if answer == Ok(true) { "created" } else { "there already" });
                self.model.create(&queue, &answer)
            }
            Step::Send { handle, sends } => {
                let message = |(id, queue): &(MessageId, usize)| {
                    let message = Message::new("a body").id(id.clone()).header("a", "b");
                    message.to(self.queue(*queue), Due::NOW).message
                };
                let messages: Vec<_> = sends.iter().map(message).collect();
                self.send(*handle, &messages).await
            }
            Step::Receive { handle, queue, selection } => {
                let queue = self.queue(*queue);
                self.receive(*handle, &queue, selection).await
            }
            Step::Complete { claim, picks } => self.settle(*claim, picks, Settling::Complete).await,
            Step::Abandon { claim, picks } => self.settle(*claim, picks, Settling::Abandon).await,
            Step::Move { claim, picks, to } => {
                let to = self.queue(*to);
                self.settle(*claim, picks, Settling::MoveTo(&to)).await
            }
            Step::Renew { claim } => {
                if let Some(index) = claim.checked_rem(self.claims.len()) {
                    self.claims[index].claim.renew().await?;
                    self.tally.note("renewed");
                }
                Ok(())
            }
            Step::Drop { claim } => match claim.checked_rem(self.claims.len()) {
                Some(index) => self.drop_claim(index).await,
                None => Ok(()),
            },
            Step::Browse { handle, queue, after, limit } => {
                let (queue, positions) = (self.queue(*queue), self.model.positions());
                let after = after.checked_sub(1).and_then(|pick| positions.get(pick)).copied().unwrap_or(0);
                self.browse(*handle, &queue, after, *limit).await
            }
            Step::Purge { handle, queue } => {
                let queue = self.queue(*queue);
                let answer = self.handles[*handle].purge(&queue).await.map_err(kind);
                self.tally.note(if answer == Ok(0) { "purged nothing" } else { "purged" });
                self.model.purge(&queue, &answer)
            }
            Step::List { handle } => self.list(*handle).await,
            Step::Reopen { handle } => self.reopen(*handle).await,
        }
    }

    fn queue(&self, number: usize) -> Address {
        address(format!("{}{number}", self.prefix))
    }

    async fn send(&mut self, handle: usize, messages: &[OutgoingMessage]) -> Result<()> {
        let outcomes = self.handles[handle].dispatcher().dispatch(messages, None).await;
        let answers: Vec<_> =
            outcomes.into_iter().map(|outcome| outcome.map_err(|error| error.kind())).collect();
        let sent: Vec<_> = answers.iter().map(Result::is_ok).collect();
        self.tally.note_each(&sent, "sent", "not sent");
        self.model.send(messages, &answers)
    }

    async fn receive(&mut self, handle: usize, queue: &Address, selection: &Selection) -> Result<()> {
        self.last_claim += 1;
        let number = self.last_claim;
        let answer = match self.receiver(handle, queue).await {
            Ok(receiver) => receiver.try_receive(selection).await,
            Err(error) => Err(error),
        };
        let (answer, claim) = match answer {
            Ok(batch) => (Ok(batch.messages), Some(batch.claim)),
            Err(error) => (Err(kind(error)), None),
        };
        self.model.receive(queue, selection, number, &answer)?;
        let given: Vec<_> = answer.iter().flatten().map(|message| message.position).collect();
        self.tally.note(if given.is_empty() { "received nothing" } else { "received" });
        if let Some(claim) = claim.filter(|_| !given.is_empty()) {
            self.claims.push(Open { number, handle, queue: queue.clone(), given, claim });
        }
        Ok(())
    }

    async fn receiver(&mut self, handle: usize, queue: &Address) -> Result<Arc<dyn Receiver>, StoreError> {
        let key = (handle, queue.clone());
        if let Some(receiver) = self.receivers.get(&key) {
            return Ok(Arc::clone(receiver));
        }
        let receiver = self.handles[handle].receiver(queue).await?;
        self.receivers.insert(key, Arc::clone(&receiver));
        Ok(receiver)
    }

    async fn settle(&mut self, claim: usize, picks: &[Pick], settling: Settling<'_>) -> Result<()> {
        let Some(index) = claim.checked_rem(self.claims.len()) else { return Ok(()) };
        let positions: Vec<_> = picks.iter().map(|pick| self.position(index, *pick)).collect();
        self.settle_positions(index, &positions, settling).await
    }

    fn position(&self, claim: usize, pick: Pick) -> u64 {
        let (pick, positions) = match pick {
            Pick::Given(pick) => (pick, self.claims[claim].given.clone()),
            Pick::Any(pick) => (pick, self.model.positions()),
        };
        pick.checked_rem(positions.len()).map_or(0, |index| positions[index])
    }

    async fn settle_positions(
        &mut self,
        index: usize,
        positions: &[u64],
        settling: Settling<'_>,
    ) -> Result<()> {
        let Open { number, queue, claim, .. } = &mut self.claims[index];
        let (answer, yes, no) = match settling {
            Settling::Complete => (claim.complete(positions).await, "completed", "not completed"),
            Settling::Abandon => (claim.abandon(positions).await, "abandoned", "not abandoned"),
            Settling::MoveTo(to) => (claim.move_to(positions, to).await, "moved", "not moved"),
        };
        let answer = answer.map_err(kind);
        match &answer {
            Ok(answers) => self.tally.note_each(answers, yes, no),
            Err(_) => self.tally.note("no such queue"),
        }
        self.model.settle(queue, *number, positions, settling, &answer)
    }

    async fn drop_claim(&mut self, index: usize) -> Result<()> {
        let open = self.claims.remove(index);
        drop(open.claim);
        self.model.let_go(open.number);
        self.tally.note("dropped");
        self.wait_until_free(open.handle).await
    }

    /// Dropping cannot wait until all can take what was given back: takes it, and gives it back once more.
    async fn wait_until_free(&mut self, handle: usize) -> Result<()> {
        let begin = Instant::now();
        while let Some((queue, selection)) = self.model.letting_go() {
            ensure!(begin.elapsed() < PATIENCE, "what a dropped claim held is not free: {selection:?}");
            let claims = self.claims.len();
            self.receive(handle, &queue, &selection).await?;
            if self.claims.len() == claims {
                sleep(MOMENT).await;
                continue;
            }
            let given = self.claims[claims].given.clone();
            self.settle_positions(claims, &given, Settling::Abandon).await?;
            self.claims.truncate(claims);
        }
        Ok(())
    }

    async fn browse(&mut self, handle: usize, queue: &Address, after: u64, most: usize) -> Result<()> {
        let answer = self.handles[handle].browse(queue, after, limit(most)).await.map_err(kind);
        if answer.as_ref().is_ok_and(|shown| !shown.is_empty()) {
            self.tally.note("browsed");
        }
        self.model.browse(queue, after, most, &answer)
    }

    /// Looks at what was sent or moved by the last step.
    async fn see_what_is_new(&mut self) -> Result<()> {
        for queue in self.model.unseen() {
            self.browse(0, &queue, 0, ALL).await?;
        }
        ensure!(!self.is_too_slow(), TooSlow);
        Ok(())
    }

    async fn list(&mut self, handle: usize) -> Result<()> {
        let answer = self.handles[handle].list().await.map_err(kind);
        let ours = answer.map(|mut all| {
            all.retain(|status| status.name.as_str().starts_with(&self.prefix));
            all
        });
        self.model.list(&ours)
    }

    /// Closes a handle with all that came from it, and opens another one.
    async fn reopen(&mut self, handle: usize) -> Result<()> {
        for open in self.claims.extract_if(.., |open| open.handle == handle) {
            self.model.let_go(open.number);
        }
        self.receivers.retain(|(owner, _), _| *owner != handle);
        self.handles.remove(handle);
        let reopened = self.bench.queues().await?;
        self.handles.insert(handle, reopened);
        self.tally.note("reopened");
        self.wait_until_free(handle).await
    }

    /// What the model says is there comes out of the queues, and nothing else.
    async fn drain(&mut self) -> Result<()> {
        while !self.claims.is_empty() {
            self.drop_claim(0).await?;
        }
        while let Some(queue) = self.model.filled() {
            self.receive(1, &queue, &Selection::Next(limit(3))).await?;
            let given = self.claims[0].given.clone();
            self.settle_positions(0, &given, Settling::Complete).await?;
            self.claims.clear();
        }
        for handle in 0..self.handles.len() {
            self.list(handle).await?;
        }
        Ok(())
    }
}

fn kind(error: StoreError) -> StoreErrorKind {
    error.kind()
}
