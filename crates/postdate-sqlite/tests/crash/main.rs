//! Killing processes half-way, and what is left.
//!
//! This binary is its own child: with a role in its environment it plays that, on a file, until it is killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child;
mod place;
mod run;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Trial};
use postdate_core::DelayedMessageStoreExt;
use postdate_history::Guarantee;
use tokio::runtime::Runtime;

use crate::{
    child::{Child, Role},
    place::{BACKLOG, Place, limit},
    run::Run,
};

type Test = fn() -> BoxFuture<'static, ()>;

const TESTS: &[(&str, Test)] = &[
    ("what_was_acknowledged_survives_a_kill", || Box::pin(acknowledged_survives())),
    ("a_shared_transaction_is_exactly_once_over_a_kill", || Box::pin(exactly_once())),
    ("without_a_shared_transaction_a_kill_loses_nothing", || Box::pin(at_least_once())),
    ("a_killed_dispatcher_frees_what_it_held_at_once", || Box::pin(freed_at_once())),
    #[cfg(unix)]
    ("a_file_that_may_not_be_written_is_refused", || Box::pin(read_only_is_refused())),
];

fn main() -> ExitCode {
    if let Some(exit) = child::play() {
        return exit;
    }
    let trial = |(name, test): &(&str, Test)| {
        let test = *test;
        Trial::test(*name, move || {
            Runtime::new()?.block_on(test());
            Ok(())
        })
    };
    libtest_mimic::run(&Arguments::from_args(), TESTS.iter().map(trial).collect()).exit_code()
}

async fn acknowledged_survives() {
    let run = Run::new("acknowledged", Guarantee::AtLeastOnce).await;
    for round in 1..=5 {
        let said = Child::start_in(&run, round, Role::Store).kill_after(100 * round as usize);
        assert!(!said.is_empty());
        run.died(round).await;
    }
    let counts = run.judge().await;
    assert!(counts.acknowledged >= 1_500 && counts.lost == 0, "{counts}");
}

async fn exactly_once() {
    drain_over_kills("drained-exactly-once", Guarantee::ExactlyOnce, Role::DrainInOneTransaction).await;
}

async fn at_least_once() {
    drain_over_kills("drained-at-least-once", Guarantee::AtLeastOnce, Role::Drain).await;
}

async fn drain_over_kills(name: &'static str, guarantee: Guarantee, role: Role) {
    let run = Run::filled(name, guarantee).await;
    for round in 1..=5 {
        Child::start_in(&run, round, role).kill_after(3 * round as usize);
        run.died(round).await;
        let (stored, sent) = (run.place.stored().await, run.place.sent().await);
        assert!(!sent.is_empty() && !stored.is_empty(), "the child was killed too early or too late");
    }
    let counts = run.judge().await;
    assert_eq!((counts.attempted, counts.lost), (BACKLOG as u64, 0), "{counts}");
}

async fn freed_at_once() {
    let place = Place::filled().await;
    let store = place.store().await;
    let mut child = Child::start(Role::Hold, &place);
    assert_eq!(child.line(), BACKLOG.to_string());
    let refused = store.fetch(limit(1)).await.unwrap();
    assert!(refused.messages.is_empty() && refused.contended);
    assert_eq!(store.next_due(&[]).await.unwrap().due, None, "all are held");
    assert_eq!(store.stats().await.unwrap().in_flight, BACKLOG as u64);
    child.kill_after(0);
    let killed = Instant::now();
    assert_eq!(store.fetch(limit(BACKLOG)).await.unwrap().messages.len(), BACKLOG);
    assert!(killed.elapsed() < Duration::from_secs(5), "took {:?}", killed.elapsed());
}

/// The superuser may write everything, so the child is somebody else then.
#[cfg(unix)]
async fn read_only_is_refused() {
    use std::{fs, os::unix::fs::PermissionsExt};

    let place = Place::filled().await;
    place.closed().await;
    let permit = |mode: u32| fs::Permissions::from_mode(mode);
    for (file, directory) in [(0o444, 0o777), (0o666, 0o555)] {
        fs::set_permissions(place.path(), permit(file)).unwrap();
        fs::set_permissions(place.directory(), permit(directory)).unwrap();
        let said = Child::start_as_nobody(Role::Hold, &place).line();
        assert!(said.contains("write access"), "{said}");
    }
    fs::set_permissions(place.directory(), permit(0o777)).unwrap();
    fs::set_permissions(place.path(), permit(0o666)).unwrap();
    assert_eq!(place.stored().await.len(), BACKLOG);
}
