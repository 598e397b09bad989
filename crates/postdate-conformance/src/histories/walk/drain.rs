//! The end of every history: what the model says is there comes out of the store, and nothing else.

use anyhow::{Result, ensure};
use postdate_core::{Due, Filter};
use tokio::time::{Instant, sleep};

use super::{super::history::Request, MOMENT, PATIENCE, Walker};

/// Less than there can be, so that there is more than one batch.
const BATCH: usize = 3;

impl Walker {
    pub(super) async fn drain(&mut self) -> Result<()> {
        while !self.claims.is_empty() {
            self.drop_claim(0).await?;
        }
        for endpoint in 0..self.endpoints.len() {
            self.make_all_due(endpoint).await?;
            self.take_all(endpoint).await?;
            for seat in self.seats_at(endpoint) {
                let all = Request::List { filter: Filter::default(), page: BATCH };
                for request in [all, Request::Count, Request::NextDue { except: Vec::new() }] {
                    self.ask(seat, request).await?;
                }
            }
        }
        Ok(())
    }

    async fn make_all_due(&mut self, endpoint: usize) -> Result<()> {
        // Shows what calls that overlapped have left, and so which of the possible models is right.
        let seat = self.seats_at(endpoint)[0];
        self.ask(seat, Request::List { filter: Filter::default(), page: BATCH }).await?;
        for id in self.endpoints[endpoint].belief.model().waiting() {
            self.ask(seat, Request::Reschedule(id, Due::NOW)).await?;
        }
        Ok(())
    }

    async fn take_all(&mut self, endpoint: usize) -> Result<()> {
        let begin = Instant::now();
        for seat in self.seats_at(endpoint).into_iter().cycle() {
            if self.endpoints[endpoint].belief.model().is_empty() {
                break;
            }
            ensure!(begin.elapsed() < PATIENCE, "it does not come out");
            self.ask(seat, Request::Fetch { limit: BATCH, except: Vec::new() }).await?;
            let Some(open) = self.claims.first() else {
                // Another handle may have the right to dispatch.
                sleep(MOMENT).await;
                continue;
            };
            let held = self.endpoints[endpoint].belief.model().held_by(open.number);
            for request in [Request::Remove(held), Request::Commit] {
                let call = self.with(0, request);
                self.make(call.into_iter().collect()).await?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self, seat: usize, request: Request) -> Result<()> {
        let call = self.at(seat, request);
        self.make(vec![call]).await
    }

    fn seats_at(&self, endpoint: usize) -> Vec<usize> {
        let seats = self.seats.iter().enumerate().filter(|(_, seat)| seat.endpoint == endpoint);
        seats.map(|(number, _)| number).collect()
    }
}
