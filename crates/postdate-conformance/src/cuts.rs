//! Dropping calls at every point where they wait.

use std::{
    future::poll_fn,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

/// Cuts calls off: after no poll, after one, after two, until a call is through; each time once at the moment when
/// it begins to wait, and once when it was woken, so that its answer is there and nobody takes it. All of that
/// several times, since what other threads do meanwhile differs.
///
/// A loop over [`next`](Self::next) makes one [`call`](Self::call) each time, with content of its own.
#[derive(Debug)]
pub(crate) struct Cuts {
    sweeps: usize,
    end: Instant,
    number: usize,
    polls: usize,
    moment: Moment,
    is_through: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Waiting,
    Woken,
}

/// The usual number of sweeps.
pub(crate) const SWEEPS: usize = 8;

/// A call that waits more often than this is never done.
const MOST_POLLS: usize = 200;

/// With a slow store there are fewer sweeps than were asked for, but one at least.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

/// Whoever waits to be woken for longer is cut off all the same.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Cuts {
    pub(crate) fn sweeps(sweeps: usize) -> Self {
        let end = Instant::now() + LONG_ENOUGH;
        Self { sweeps, end, number: 0, polls: 0, moment: Moment::Waiting, is_through: false }
    }

    /// The number of the next cut; none when all are made. The last one of a sweep is through; fails if none is.
    pub(crate) fn next(&mut self) -> Result<Option<usize>> {
        if self.number > 0 {
            self.advance()?;
        }
        self.number += 1;
        self.is_through = false;
        Ok((self.sweeps > 0).then_some(self.number))
    }

    fn advance(&mut self) -> Result<()> {
        if self.moment == Moment::Waiting {
            self.moment = Moment::Woken;
            return Ok(());
        }
        self.moment = Moment::Waiting;
        self.polls += 1;
        if self.is_through {
            self.polls = 0;
            self.sweeps = if Instant::now() < self.end { self.sweeps - 1 } else { 0 };
        }
        ensure!(self.polls <= MOST_POLLS, "the call waits again and again and is never done");
        Ok(())
    }

    /// Makes the call and cuts it off where it is its turn. The answer, if the call was through before that.
    pub(crate) async fn call<F: Future>(&mut self, call: F) -> Option<F::Output> {
        let answer = tokio::time::timeout(LONGEST_WAIT, self.cut(call)).await.ok().flatten();
        self.is_through = answer.is_some();
        answer
    }

    async fn cut<F: Future>(&self, call: F) -> Option<F::Output> {
        let mut call = pin!(call);
        let mut polls = 0;
        poll_fn(|context| {
            if polls == self.polls {
                return Poll::Ready(None);
            }
            polls += 1;
            match call.as_mut().poll(context) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if polls == self.polls && self.moment == Moment::Waiting => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_cut_at_each_of_its_awaits_at_both_moments_and_let_through_at_last() {
        let mut cuts = Cuts::sweeps(2);
        let mut seen = Vec::new();
        while let Some(number) = cuts.next().unwrap() {
            let mut steps = 0;
            let through = cuts.call(async {
                for _ in 0..2 {
                    steps += 1;
                    tokio::task::yield_now().await;
                }
                steps += 1;
            });
            let through = through.await.is_some();
            seen.push((number, steps, through));
        }
        let sweep =
            [(0, false), (0, false), (1, false), (1, false), (2, false), (2, false), (3, true), (3, true)];
        let expected: Vec<_> = sweep
            .into_iter()
            .cycle()
            .take(16)
            .zip(1..)
            .map(|((steps, through), n)| (n, steps, through))
            .collect();
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn a_call_that_is_never_done_is_an_error() {
        let mut cuts = Cuts::sweeps(1);
        for _ in 0..2 * (MOST_POLLS + 1) {
            assert!(cuts.next().unwrap().is_some(), "the sweep ended, though nothing was through");
            let forever = async {
                loop {
                    tokio::task::yield_now().await;
                }
            };
            assert_eq!(cuts.call(forever).await, None::<()>);
        }
        assert!(cuts.next().unwrap_err().to_string().contains("never done"));
    }
}
