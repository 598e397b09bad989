//! Calls of several kinds that one breaker watches.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use super::now;
use crate::{
    BreakerName, Event, Operation, StoreError,
    machine::Breaker,
    observer::{Reporter, Turn},
};

/// A tripped breaker whose call nobody has needed for so long is closed.
const FORGET: Duration = Duration::from_secs(600);

/// A breaker for each kind of call: one that succeeds must not hide another that never does. Together they are
/// one breaker to the outside.
#[derive(Debug)]
pub(crate) struct Calls {
    name: BreakerName,
    /// The call that goes on and on: it stands for those that are not repeated until they succeed, so that
    /// something closes their breaker.
    main: Operation,
    time_to_trigger: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Each with the time of its last failure.
    breakers: BTreeMap<Operation, (Breaker, Instant)>,
    tripped: usize,
}

impl Calls {
    pub(crate) fn new(name: BreakerName, main: Operation, time_to_trigger: Duration) -> Self {
        Self { name, main, time_to_trigger, state: Mutex::default() }
    }

    /// A call failed, which is told. Answers how long to leave it alone.
    pub(crate) fn failed(&self, reporter: &Reporter, operation: Operation, error: &StoreError) -> Duration {
        let retry_after = reporter.watch(&self.state, |calls| {
            let new = || (Breaker::new(self.time_to_trigger), now());
            let (breaker, last_failure) = calls.breakers.entry(self.watched(operation)).or_insert_with(new);
            let failed = breaker.failure(now());
            *last_failure = now();
            calls.tripped += usize::from(failed.tripped);
            let first = failed.tripped && calls.tripped == 1;
            let turn = first.then(|| Turn::Tripped(self.name.clone(), error.to_string()));
            (failed.pause, turn.into_iter().collect())
        });
        reporter.report(Event::StoreFailed { retry_after, error });
        retry_after
    }

    /// A call succeeded.
    pub(crate) fn answered(&self, reporter: &Reporter, operation: Operation) {
        reporter.watch(&self.state, |calls| {
            // What failed and was then never needed again would keep the breaker tripped for ever.
            let forgotten = |last: Instant| now().saturating_duration_since(last) > FORGET;
            let mut ended = 0;
            for (watched, (breaker, last_failure)) in &mut calls.breakers {
                if *watched == self.watched(operation) || forgotten(*last_failure) {
                    ended += usize::from(breaker.success());
                }
            }
            calls.tripped -= ended;
            let turn = (ended > 0 && calls.tripped == 0).then_some(Turn::Closed(self.name.clone()));
            ((), turn.into_iter().collect())
        });
    }

    fn watched(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Renew | Operation::Release => self.main,
            repeated => repeated,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Observer, StoreErrorKind};

    const TIME_TO_TRIGGER: Duration = Duration::from_secs(30);

    /// The turns of the breaker, as they were told.
    #[derive(Debug, Default)]
    struct Turns(Mutex<Vec<&'static str>>);

    impl Observer for Turns {
        fn observe(&self, event: &Event<'_>) {
            match event {
                Event::BreakerTripped { .. } => self.0.lock().unwrap().push("tripped"),
                Event::BreakerClosed { .. } => self.0.lock().unwrap().push("closed"),
                _ => {}
            }
        }
    }

    fn calls() -> (Calls, Reporter, Arc<Turns>) {
        let turns = Arc::<Turns>::default();
        let calls = Calls::new(BreakerName::Fetch, Operation::FetchDue, TIME_TO_TRIGGER);
        (calls, Reporter::new(vec![turns.clone()], None), turns)
    }

    async fn fails_for_long(calls: &Calls, reporter: &Reporter, operation: Operation) {
        let error = StoreError::new(StoreErrorKind::Unavailable, operation, "test", "it is away");
        for _ in 0..4 {
            calls.failed(reporter, operation, &error);
            tokio::time::advance(TIME_TO_TRIGGER / 2).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_several_kinds_are_one_breaker_to_the_outside() {
        let (calls, reporter, turns) = calls();
        fails_for_long(&calls, &reporter, Operation::Remove).await;
        fails_for_long(&calls, &reporter, Operation::Commit).await;
        fails_for_long(&calls, &reporter, Operation::Remove).await;
        assert_eq!(*turns.0.lock().unwrap(), ["tripped"]);
        calls.answered(&reporter, Operation::Remove);
        assert_eq!(*turns.0.lock().unwrap(), ["tripped"], "the other one still fails");
        calls.answered(&reporter, Operation::Commit);
        assert_eq!(*turns.0.lock().unwrap(), ["tripped", "closed"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_needs_any_more_is_forgotten() {
        let (calls, reporter, turns) = calls();
        fails_for_long(&calls, &reporter, Operation::Remove).await;
        tokio::time::advance(FORGET - TIME_TO_TRIGGER / 2).await;
        calls.answered(&reporter, Operation::FetchDue);
        assert_eq!(*turns.0.lock().unwrap(), ["tripped"]);
        tokio::time::advance(Duration::from_millis(1)).await;
        calls.answered(&reporter, Operation::FetchDue);
        assert_eq!(*turns.0.lock().unwrap(), ["tripped", "closed"]);
    }
}
