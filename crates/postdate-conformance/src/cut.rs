//! Calls whose futures are dropped at each of their awaits.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use tokio::sync::Notify;

/// Where a call is cut off: after so many polls, at once or when it would go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    polls: usize,
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// While whatever it waits for is on its way.
    AtOnce,
    /// When that is there, and nobody has looked at it.
    WhenWoken,
}

/// No call awaits more often.
const POLLS: usize = 200;
/// How often each cut is tried: what others do meanwhile takes another time each time.
const ROUNDS: usize = 8;

/// Cuts further and further on. The last of them end no call that waits for finitely many things.
pub(crate) fn cuts() -> impl Iterator<Item = Cut> {
    let cuts = (1..=POLLS).flat_map(|polls| [Then::AtOnce, Then::WhenWoken].map(|then| Cut { polls, then }));
    let unpolled = Cut { polls: 0, then: Then::AtOnce };
    std::iter::once(unpolled).chain(cuts.flat_map(|cut| [cut; ROUNDS]))
}

impl Cut {
    /// Lets the call run that far; `None` if it was not done then.
    pub(crate) async fn call<F: Future>(self, call: F) -> Option<F::Output> {
        let woken = Arc::new(Woken(Notify::new()));
        let waker = Waker::from(Arc::clone(&woken));
        let mut call = pin!(call);
        for poll in 1..=self.polls {
            if let Poll::Ready(done) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(done);
            }
            if poll < self.polls || self.then == Then::WhenWoken {
                woken.0.notified().await;
            }
        }
        None
    }
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn each_cut_lets_a_call_come_further_until_it_is_done() {
        let mut reached = Vec::new();
        for cut in cuts() {
            let mut steps = 0;
            let done = cut.call(async {
                for _ in 0..3 {
                    steps += 1;
                    yield_now().await;
                }
            });
            let done = done.await.is_some();
            reached.push(steps);
            if done {
                break;
            }
        }
        reached.dedup();
        assert_eq!(reached, [0, 1, 2, 3]);
    }
}
