//! What a loop and its batches share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{Calls, now};
use crate::{
    Address, BreakerName, DelayedMessageStore, Dispatcher, EndpointName, Event, MessageId, Operation,
    Settings, StoreError, TransactionMode,
    machine::{FailureRate, Gates, Opened, Policy},
    observer::{Reporter, Turn},
};

/// What a loop and its batches share. The poller and the pump of one endpoint share one, and with it what is known
/// of the error queue.
#[derive(Debug)]
pub(crate) struct Context {
    pub endpoint: EndpointName,
    pub mode: TransactionMode,
    pub store: Arc<dyn DelayedMessageStore>,
    pub dispatcher: Arc<dyn Dispatcher>,
    pub error_dispatcher: Arc<dyn Dispatcher>,
    pub error_queue: Address,
    pub settings: Settings,
    pub policy: Policy,
    pub reporter: Reporter,
    gates: Mutex<Gates>,
    store_calls: Calls,
    recovery: Mutex<FailureRate>,
    suspects: Mutex<BTreeMap<MessageId, String>>,
}

/// Where messages come from and go to.
#[derive(Debug)]
pub(crate) struct Route {
    pub endpoint: EndpointName,
    pub mode: TransactionMode,
    pub store: Arc<dyn DelayedMessageStore>,
    pub dispatcher: Arc<dyn Dispatcher>,
    pub error_dispatcher: Arc<dyn Dispatcher>,
    pub error_queue: Address,
}

impl Context {
    pub(crate) fn new(route: Route, settings: Settings, reporter: Reporter) -> Self {
        let Route { endpoint, mode, store, dispatcher, error_dispatcher, error_queue } = route;
        Self {
            endpoint,
            mode,
            store,
            dispatcher,
            error_dispatcher,
            error_queue,
            policy: Policy {
                number_of_retries: settings.number_of_retries,
                retry_backoff: settings.retry_backoff,
                maximum_lateness: settings.catch_up.maximum_lateness,
            },
            gates: Mutex::new(Gates::new(settings.time_to_trigger_dispatch_circuit_breaker)),
            store_calls: Calls::new(
                BreakerName::Fetch,
                Operation::FetchDue,
                settings.time_to_trigger_fetch_circuit_breaker,
            ),
            recovery: Mutex::new(FailureRate::new(settings.maximum_recovery_failures_per_second)),
            suspects: Mutex::default(),
            settings,
            reporter,
        }
    }

    pub(crate) fn gates(&self) -> MutexGuard<'_, Gates> {
        lock(&self.gates)
    }

    /// Destinations for which nothing should be fetched now.
    pub(crate) fn shut_gates(&self, now: Instant) -> Vec<Address> {
        self.forget_gates(now);
        self.gates().shut(now)
    }

    /// Time has passed: breakers that nothing else would close may close.
    pub(crate) fn time_passed(&self) {
        self.recovery_passed();
        self.forget_gates(now());
    }

    fn forget_gates(&self, now: Instant) {
        self.reporter.watch(&self.gates, |gates| {
            let forgotten = gates.forget(now).into_iter().map(BreakerName::Dispatch);
            ((), forgotten.map(Turn::Closed).collect())
        });
    }

    /// A call to the store failed. Answers how long to leave it alone.
    pub(crate) fn store_failed(&self, operation: Operation, error: &StoreError) -> Duration {
        self.store_calls.failed(&self.reporter, operation, error)
    }

    /// A call to the store succeeded.
    pub(crate) fn store_answered(&self, operation: Operation) {
        self.store_calls.answered(&self.reporter, operation);
    }

    /// A destination took a message or refused one. Answers whether its gate was shut before.
    pub(crate) fn reached(&self, destination: &Address) -> bool {
        self.reporter.watch(&self.gates, |gates| {
            let opened = gates.reached(destination);
            let closed = opened == Opened::AndBreakerClosed;
            let turn = closed.then(|| Turn::Closed(BreakerName::Dispatch(destination.clone())));
            (opened != Opened::WasOpen, turn.into_iter().collect())
        })
    }

    /// A destination could not be reached. Answers how long to leave it alone.
    pub(crate) fn unavailable(&self, destination: &Address, error: &str) -> Duration {
        self.reporter.watch(&self.gates, |gates| {
            let failed = gates.unavailable(destination, now());
            let tripped = || Turn::Tripped(BreakerName::Dispatch(destination.clone()), error.to_owned());
            (failed.pause, failed.tripped.then(tripped).into_iter().collect())
        })
    }

    /// Counting a failure or moving to the error queue did not work.
    pub(crate) fn recovery_failed(&self, id: &MessageId, error: &str) {
        self.reporter.report(Event::RecoveryFailed { id, error });
        // A calm window before this failure ends the episode before.
        self.recovery_passed();
        self.reporter.watch(&self.recovery, |recovery| {
            let tripped = || Turn::Tripped(BreakerName::Recovery, error.to_owned());
            ((), recovery.failure(now()).then(tripped).into_iter().collect())
        });
    }

    /// Time has passed: the recovery breaker may close.
    pub(crate) fn recovery_passed(&self) {
        self.reporter.watch(&self.recovery, |recovery| {
            let closed = recovery.pass(now()).then_some(Turn::Closed(BreakerName::Recovery));
            ((), closed.into_iter().collect())
        });
    }

    /// A message, fetched alone, broke its transaction: next time its attempt counts as failed untried.
    pub(crate) fn suspect(&self, id: MessageId, error: String) {
        lock(&self.suspects).insert(id, error);
    }

    /// What is held against a message, once.
    pub(crate) fn suspicion(&self, id: &MessageId) -> Option<String> {
        let mut suspects = lock(&self.suspects);
        if suspects.is_empty() { None } else { suspects.remove(id) }
    }
}

/// How late `due` is at `now`.
pub(crate) fn lateness(now: Timestamp, due: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(due)).unwrap_or(Duration::ZERO)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend as _, Memory, Queues as _, StoreErrorKind, TransactionMode};

    async fn context() -> Context {
        let memory = Memory::new();
        let endpoint = EndpointName::new("orders").unwrap();
        memory.set_up(&endpoint).await.unwrap();
        let mode = TransactionMode::ReceiveOnly;
        let store = memory.open(&endpoint, mode).await.unwrap();
        let dispatcher = memory.queues().dispatcher();
        let (error_dispatcher, error_queue) = (dispatcher.clone(), Address::new("error").unwrap());
        let route = Route { endpoint, mode, store, dispatcher, error_dispatcher, error_queue };
        Context::new(route, Settings::default(), Reporter::new(Vec::new(), None))
    }

    fn failure(operation: Operation) -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, operation, "test", "it is away")
    }

    #[tokio::test(start_paused = true)]
    async fn failures_with_a_success_between_them_trip_no_breaker() {
        let context = context().await;
        for operation in [Operation::Commit, Operation::Renew, Operation::Release] {
            for _ in 0..3 {
                context.store_failed(operation, &failure(operation));
                context.store_answered(operation);
                tokio::time::advance(Duration::from_secs(40)).await;
            }
            assert!(context.reporter.tripped_now().is_empty(), "{operation}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fetching_again_closes_what_a_failed_release_left_open() {
        let context = context().await;
        for _ in 0..2 {
            context.store_failed(Operation::Release, &failure(Operation::Release));
            tokio::time::advance(Duration::from_secs(40)).await;
        }
        assert_eq!(context.reporter.tripped_now(), [BreakerName::Fetch]);
        context.store_answered(Operation::FetchDue);
        assert!(context.reporter.tripped_now().is_empty());
    }
    #[tokio::test(start_paused = true)]
    async fn a_destination_is_back_once() {
        let (context, billing) = (context().await, Address::new("billing").unwrap());
        assert!(!context.reached(&billing), "it was never away");
        context.unavailable(&billing, "it is down");
        assert!(context.reached(&billing));
        assert!(!context.reached(&billing));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_against_a_message_is_held_once() {
        let (context, [bad, good]) = (context().await, ["bad", "good"].map(|id| MessageId::new(id).unwrap()));
        context.suspect(bad.clone(), "it broke the transaction".to_owned());
        assert_eq!(context.suspicion(&good), None);
        assert_eq!(context.suspicion(&bad).as_deref(), Some("it broke the transaction"));
        assert_eq!(context.suspicion(&bad), None);
    }
}
