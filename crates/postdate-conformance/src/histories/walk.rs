//! Walking through a history with a store and the model side by side.

mod call;
mod drain;
mod ends;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use postdate_core::{Backend, Capabilities, ClaimKind, DelayedMessageStore, EndpointName, TransactionMode};
use tokio::time::Instant;

use super::{
    belief::Belief,
    event::{ClaimNumber, Event},
    history::{History, Request, Step},
    model::Model,
    search::{AtStep, TooSlow},
    tally::Tally,
};
use crate::bench::Bench;
use call::{Call, Done, Open, Target};

/// What cannot be waited for longer: nothing here takes time but the end of a lease.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long between two looks.
const MOMENT: Duration = Duration::from_millis(1);

/// So long before its end a lease is not relied upon.
const NEARLY_OVER: Duration = Duration::from_millis(200);

/// So many claims are held at most where each has a connection.
const MOST_CONNECTIONS: usize = 3;

/// Where somebody sits: an open store, one of several of the same endpoint.
struct Seat {
    endpoint: usize,
    handle: u64,
    store: Arc<dyn DelayedMessageStore>,
}

struct Endpoint {
    name: EndpointName,
    belief: Belief,
}

pub(super) struct Walker {
    bench: Bench,
    capabilities: Capabilities,
    mode: TransactionMode,
    endpoints: Vec<Endpoint>,
    seats: Vec<Seat>,
    claims: Vec<Open>,
    /// The last number that a claim or a handle got.
    last_number: u64,
    /// No lease that is relied upon is older.
    leases_since: Instant,
    tally: Tally,
}

impl Walker {
    /// Opens seats, each at one of the endpoints and on one of the handles, in one of the store's modes.
    pub(super) async fn open(
        bench: Bench,
        handles: &[Arc<dyn Backend>],
        endpoints: &[EndpointName],
        places: &[(usize, usize)],
        mode: usize,
    ) -> Result<Self> {
        let capabilities = bench.capabilities()?;
        let mode =
            *capabilities.modes.iter().cycle().nth(mode).context("the store supports no mode at all")?;
        for endpoint in endpoints {
            handles[0].set_up(endpoint).await?;
        }
        let mut seats = Vec::new();
        for (endpoint, handle) in places.iter().copied() {
            let store = handles[handle].open(&endpoints[endpoint], mode).await?;
            seats.push(Seat { endpoint, handle: handle as u64, store });
        }
        let belief = Belief::new(Model::new(capabilities, mode));
        let endpoints = endpoints.iter().map(|name| Endpoint { name: name.clone(), belief: belief.clone() });
        Ok(Self {
            bench,
            capabilities,
            mode,
            endpoints: endpoints.collect(),
            seats,
            claims: Vec::new(),
            last_number: handles.len() as u64,
            leases_since: Instant::now(),
            tally: Tally::default(),
        })
    }

    /// Walks to the end, and takes everything that is left out of the store.
    pub(super) async fn walk(mut self, history: &History) -> Result<Tally> {
        match self.walk_on(history).await {
            Err(_) if self.is_too_slow() => Err(TooSlow.into()),
            walked => walked.map(|()| self.tally),
        }
    }

    async fn walk_on(&mut self, history: &History) -> Result<()> {
        for seat in 0..self.seats.len() {
            let call = self.at(seat, Request::NextDue { except: Vec::new() });
            self.make(vec![call]).await?;
        }
        for (i, moment) in history.moments.iter().enumerate() {
            self.take(moment).await.context(AtStep(i + 1))?;
            self.tally.note("steps");
        }
        self.drain().await.context("taking out what is left in the end")
    }

    fn is_too_slow(&self) -> bool {
        let ClaimKind::Lease(term) = self.capabilities.claim else { return false };
        self.leases_since.elapsed() + NEARLY_OVER > term
    }

    /// Takes the steps of a moment.
    async fn take(&mut self, moment: &[Step]) -> Result<()> {
        let mut calls = Vec::new();
        for step in moment {
            match step {
                Step::At(_, Request::Fetch { .. }) if self.has_no_connection_left(calls.len()) => {}
                Step::At(seat, request) => calls.push(self.at(*seat, request.clone())),
                Step::With(claim, request) => calls.extend(self.with(*claim, request.clone())),
                Step::Drop(claim) => {
                    if let Some(index) = claim.checked_rem(self.claims.len()) {
                        self.drop_claim(index).await?;
                    }
                }
                Step::Reopen(seat) => self.reopen(*seat).await?,
                Step::LetLeasesEnd { keep } => self.let_leases_end(*keep).await?,
            }
        }
        if self.endpoints.iter().any(|endpoint| endpoint.belief.is_vague()) {
            for call in calls {
                self.make(vec![call]).await?;
            }
            return Ok(());
        }
        self.make(calls).await
    }

    fn has_no_connection_left(&self, calls: usize) -> bool {
        self.bench.claims_have_connections() && self.claims.len() + calls >= MOST_CONNECTIONS
    }

    fn at(&mut self, seat: usize, request: Request) -> Call {
        self.last_number += 1;
        let Seat { endpoint, handle, store, .. } = &self.seats[seat];
        let target = Target::Store { store: Arc::clone(store), handle: *handle, number: self.last_number };
        Call { seat, endpoint: *endpoint, target, request }
    }

    /// A call of one of the claims that no other call has; none if there is none.
    fn with(&mut self, claim: usize, request: Request) -> Option<Call> {
        let index = claim.checked_rem(self.claims.len())?;
        let open = self.claims.remove(index);
        let (seat, endpoint) = (open.seat, self.seats[open.seat].endpoint);
        Some(Call { seat, endpoint, target: Target::Claim(open), request })
    }

    /// Makes calls, all at the same time, and has the model explain the answers.
    async fn make(&mut self, mut calls: Vec<Call>) -> Result<()> {
        let mut done = Vec::new();
        if calls.len() > 1 {
            self.tally.note("overlapped");
            let calls: Vec<_> = calls.into_iter().map(|call| tokio::spawn(call.make())).collect();
            for call in calls {
                done.push(call.await?);
            }
        } else if let Some(call) = calls.pop() {
            done.push(call.make().await);
        }
        self.judge(&done)?;
        let strays = self.strays(&done);
        for Done { endpoint, event, open } in done {
            match (event, open) {
                (Event::Fetched { claim, answer: Ok(batch), .. }, _) if batch.messages.is_empty() => {
                    self.accept(endpoint, Event::Dropped { claim })?;
                }
                (_, open) => self.claims.extend(open),
            }
        }
        self.claims.sort_by_key(|open| open.number);
        for (endpoint, claim) in strays {
            self.end_stray(endpoint, claim).await?;
        }
        self.settle().await
    }

    /// Claims that may hold more than they fetched. A server that comes upon a message which another call has just
    /// given another time locks it before it sees that, for as long as the transaction lasts.
    fn strays(&self, done: &[Done]) -> Vec<(usize, ClaimNumber)> {
        let is_disturbed = done.len() > 1 && done.iter().any(|done| done.event.postpones());
        let fetched = done.iter().filter_map(|done| Some((done.endpoint, done.event.takes()?)));
        fetched.filter(|_| is_disturbed && self.bench.claims_have_connections()).collect()
    }

    fn judge(&mut self, done: &[Done]) -> Result<()> {
        done.iter().for_each(|done| done.event.note(&mut self.tally));
        for (i, endpoint) in self.endpoints.iter_mut().enumerate() {
            let events = done.iter().filter(|done| done.endpoint == i).map(|done| done.event.clone());
            endpoint.belief.accept_all(&events.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn accept(&mut self, endpoint: usize, event: Event) -> Result<()> {
        event.note(&mut self.tally);
        self.endpoints[endpoint].belief.accept(&event)
    }

    /// Asks for what the answers of a step did not tell: retry times, and the time.
    async fn settle(&mut self) -> Result<()> {
        for endpoint in 0..self.endpoints.len() {
            let store = self.store_of(endpoint)?;
            for id in self.endpoints[endpoint].belief.model().unclear() {
                let answer = store.get(&id).await.map_err(Into::into);
                self.accept(endpoint, Event::Looked { id, answer })?;
            }
            if self.endpoints[endpoint].belief.model().is_time_owed() {
                let answer = store.next_due(&[]).await.map_err(Into::into);
                self.accept(endpoint, Event::NextDue { except: Vec::new(), answer })?;
            }
            self.endpoints[endpoint].belief.settle()?;
        }
        ensure!(!self.is_too_slow(), TooSlow);
        Ok(())
    }

    fn store_of(&self, endpoint: usize) -> Result<Arc<dyn DelayedMessageStore>> {
        let seat = self.seats.iter().find(|seat| seat.endpoint == endpoint);
        Ok(Arc::clone(&seat.context("nobody sits at the endpoint")?.store))
    }
}
