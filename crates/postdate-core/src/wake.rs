//! For authors of stores: waking those who wait in [`changed`](crate::DelayedMessageStore::changed).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use crate::Address;

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// A delayed message of the endpoint of this number.
    Endpoint(i64),
    /// A message in the queue of this number.
    Queue(i64),
}

/// One waiter: a store handle or a receiver of a queue.
#[derive(Debug)]
pub struct Wake {
    /// Counts the reasons to wake.
    reasons: watch::Sender<u64>,
    /// How many of them [`changed`](Self::changed) has told of.
    told: AtomicU64,
    interest: Mutex<Interest>,
}

/// What is a reason.
#[derive(Debug)]
struct Interest {
    /// Only what comes before this time.
    horizon: i64,
    /// Nothing that is for these destinations.
    except: BTreeSet<Address>,
}

/// All waiters of a handle.
#[derive(Debug, Default)]
pub struct Wakes(Mutex<BTreeMap<Topic, Vec<Weak<Wake>>>>);

impl Wake {
    /// Waits for a reason that was not told of before.
    pub async fn changed(&self) {
        let told = self.told.load(Ordering::Acquire);
        let mut reasons = self.reasons.subscribe();
        // An error would mean that the sender is gone, and the sender is in `self`.
        if let Ok(count) = reasons.wait_for(|count| *count != told).await {
            self.told.fetch_max(*count, Ordering::AcqRel);
        }
    }

    /// From now on only what comes before `horizon` and is not for one of these destinations is a reason. Time is
    /// counted as the store counts it.
    pub fn set_interest(&self, horizon: i64, except: &[Address]) {
        *self.interest() = Interest { horizon, except: except.iter().cloned().collect() };
    }

    /// Gives a reason.
    pub fn ring(&self) {
        self.reasons.send_modify(|count| *count += 1);
    }

    fn is_reason(&self, time: i64, destination: Option<&Address>) -> bool {
        let interest = self.interest();
        time < interest.horizon && !destination.is_some_and(|address| interest.except.contains(address))
    }

    fn interest(&self) -> MutexGuard<'_, Interest> {
        self.interest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wakes {
    /// A new waiter, which takes everything for a reason until it sets its interest.
    pub fn join(&self, topic: Topic) -> Arc<Wake> {
        let wake = Arc::new(Wake {
            reasons: watch::Sender::new(0),
            told: AtomicU64::new(0),
            interest: Mutex::new(Interest { horizon: i64::MAX, except: BTreeSet::new() }),
        });
        let mut waiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiters = waiters.entry(topic).or_default();
        waiters.retain(|waiter| waiter.strong_count() > 0);
        waiters.push(Arc::downgrade(&wake));
        wake
    }

    /// Something happens at `time`, for a destination or for any: wakes those who have reason.
    pub fn ring(&self, topic: Topic, time: i64, destination: Option<&Address>) {
        let waiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiters = waiters.get(&topic).into_iter().flatten().filter_map(Weak::upgrade);
        waiters.filter(|wake| wake.is_reason(time, destination)).for_each(|wake| wake.ring());
    }

    /// Anything may have happened: wakes everybody.
    pub fn ring_all(&self) {
        let waiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.values().flatten().filter_map(Weak::upgrade).for_each(|wake| wake.ring());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const HERE: Topic = Topic::Endpoint(1);

    #[test]
    fn a_reason_between_two_calls_is_not_missed() {
        let wakes = Wakes::default();
        let wake = wakes.join(HERE);
        assert!(wake.changed().now_or_never().is_none());
        wakes.ring(HERE, 5, None);
        assert!(wake.changed().now_or_never().is_some());
        assert!(wake.changed().now_or_never().is_none());
    }

    #[test]
    fn what_lies_beyond_the_horizon_is_no_reason() {
        let wakes = Wakes::default();
        let wake = wakes.join(HERE);
        wake.set_interest(10, &[]);
        wakes.ring(HERE, 10, None);
        wakes.ring(Topic::Endpoint(2), 1, None);
        wakes.ring(Topic::Queue(1), 1, None);
        assert!(wake.changed().now_or_never().is_none());
        wakes.ring(HERE, 9, None);
        assert!(wake.changed().now_or_never().is_some());
    }

    #[test]
    fn all_who_wait_on_one_handle_are_woken() {
        let wakes = Wakes::default();
        let wake = wakes.join(HERE);
        let (one, two) = (wake.changed(), wake.changed());
        let mut both = Box::pin(futures::future::join(one, two));
        assert!(both.as_mut().now_or_never().is_none());
        wakes.ring_all();
        assert!(both.now_or_never().is_some());
    }
}
