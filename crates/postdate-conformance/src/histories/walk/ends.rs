//! What ends: claims that are dropped, handles that are closed, and leases.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use jiff::Timestamp;
use postdate_core::{ClaimKind, Dispatching, MessageId, MessageState};
use tokio::time::{Instant, sleep};

use super::{
    super::{
        event::{ClaimNumber, Event},
        history::Request,
    },
    Endpoint, MOMENT, Open, PATIENCE, Seat, Walker,
};

impl Walker {
    pub(super) async fn drop_claim(&mut self, index: usize) -> Result<()> {
        let Open { number, seat, claim } = self.claims.remove(index);
        let endpoint = self.seats[seat].endpoint;
        let held = self.endpoints[endpoint].belief.model().held_by(number);
        drop(claim);
        self.accept(endpoint, Event::Dropped { claim: number })?;
        self.wait_until_free(endpoint, &held).await?;
        self.settle().await
    }

    /// Ends a claim that may hold more than it fetched.
    pub(super) async fn end_stray(&mut self, endpoint: usize, claim: ClaimNumber) -> Result<()> {
        self.claims.retain(|open| open.number != claim);
        self.accept(endpoint, Event::Dropped { claim })?;
        let free = self.endpoints[endpoint].belief.model().free();
        self.wait_until_free(endpoint, &free).await
    }

    /// Dropping cannot wait until all can see what was given back.
    async fn wait_until_free(&mut self, endpoint: usize, ids: &[MessageId]) -> Result<()> {
        let begin = Instant::now();
        for seat in self.seats.iter().filter(|seat| seat.endpoint == endpoint) {
            for id in ids {
                while seat.store.get(id).await?.is_some_and(|seen| seen.state != MessageState::Pending) {
                    ensure!(begin.elapsed() < PATIENCE, "{id} was given back, and is shown as in flight");
                    sleep(MOMENT).await;
                }
            }
        }
        Ok(())
    }

    /// Closes what is open at a seat, and opens it on a new handle.
    pub(super) async fn reopen(&mut self, number: usize) -> Result<()> {
        let endpoint = self.seats[number].endpoint;
        let mut given_back = Vec::new();
        for open in self.claims.extract_if(.., |open| open.seat == number).collect::<Vec<_>>() {
            given_back.extend(self.endpoints[endpoint].belief.model().held_by(open.number));
            self.accept(endpoint, Event::Dropped { claim: open.number })?;
        }
        let handle = self.seats.remove(number).handle;
        if !self.seats.iter().any(|seat| (seat.endpoint, seat.handle) == (endpoint, handle)) {
            self.accept(endpoint, Event::Closed { handle })?;
        }
        let backend = self.bench.backend().await?;
        let Endpoint { name, belief } = &self.endpoints[endpoint];
        let store = backend.open(name, self.mode).await?;
        let begin = Instant::now();
        while belief.model().dispatcher().is_none()
            && backend.dispatching(name).await? == Dispatching::Elsewhere
        {
            ensure!(begin.elapsed() < PATIENCE, "the right to dispatch is not free after all were closed");
            sleep(MOMENT).await;
        }
        self.last_number += 1;
        self.seats.insert(number, Seat { endpoint, handle: self.last_number, store });
        self.wait_until_free(endpoint, &given_back).await?;
        self.settle().await
    }

    /// Waits until all leases have ended by the store's clock, but for that of a claim that is renewed meanwhile.
    pub(super) async fn let_leases_end(&mut self, keep: Option<usize>) -> Result<()> {
        let ClaimKind::Lease(term) = self.capabilities.claim else { bail!("there are no leases") };
        let begin = self.store_time().await?;
        self.wait_for(begin.saturating_add(term / 2)?).await?;
        self.leases_since = Instant::now();
        let keep = keep.and_then(|claim| claim.checked_rem(self.claims.len()));
        let mut kept = None;
        if let Some(index) = keep {
            kept = Some(self.claims[index].number);
            let call = self.with(index, Request::Renew);
            self.make(call.into_iter().collect()).await?;
        }
        self.wait_for(begin.saturating_add(term + self.capabilities.resolution)?).await?;
        if kept.is_none() {
            self.leases_since = Instant::now();
        }
        for endpoint in 0..self.endpoints.len() {
            self.accept(endpoint, Event::LeasesEnded { kept })?;
        }
        Ok(())
    }

    async fn wait_for(&mut self, time: Timestamp) -> Result<()> {
        loop {
            let left = time.duration_since(self.store_time().await?);
            let Ok(left) = Duration::try_from(left) else { return Ok(()) };
            sleep(left.max(MOMENT)).await;
        }
    }

    async fn store_time(&mut self) -> Result<Timestamp> {
        Ok(self.store_of(0)?.next_due(&[]).await?.now)
    }
}
