//! What a check is, and how it is run.

use std::{any::Any, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{runtime, time};

use crate::{
    bench::Bench,
    histories,
    judge::Stop,
    meddling::Unmet,
    patience,
    place::{Place, Places},
    suite::Subject,
};

/// What came of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Its sentence is true, as far as was seen.
    Passed,
    /// It does not apply, because this is missing.
    Ignored(String),
    /// Its sentence is not true, or this went wrong.
    Failed(String),
}

/// A sentence that is true of every backend that has what it needs.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// The module that it stands in.
    pub(crate) module: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(Arc<Bench>) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// What not every backend has.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    /// Claims that end by themselves.
    Leases,
    /// What is stored survives the process.
    Durability,
    /// Stores and queues that join in one transaction.
    SharedTransactions,
    /// A limit on the size of messages that can be tried.
    SizeLimit,
    /// The same for queues.
    QueueSizeLimit,
    /// `changed` completes at changes.
    WakeUps,
}

/// The sentences of a file: each async function in it is a check, and its name the sentence.
macro_rules! checks {
    ($($(#[doc = $doc:literal])* $(#[needs($need:ident)])* async fn $name:ident($bench:ident: &Bench) -> Result<()> $body:block)*) => {
        pub(crate) const CHECKS: &[$crate::harness::Check] = &[$($crate::harness::Check {
            name: stringify!($name),
            module: module_path!(),
            needs: &[$($crate::harness::Need::$need),*],
            run: |bench| Box::pin(async move { $name(&bench).await }),
        }),*];

        $($(#[doc = $doc])* async fn $name($bench: &Bench) -> Result<()> $body)*
    };
}
pub(crate) use checks;

/// Fails if the two are not equal, and shows both.
macro_rules! ensure_eq {
    ($left:expr, $right:expr $(,)?) => {
        match (&$left, &$right) {
            (left, right) => anyhow::ensure!(
                left == right,
                "{} is {}, not {}",
                stringify!($left),
                $crate::harness::shown(left),
                $crate::harness::shown(right)
            ),
        }
    };
}
pub(crate) use ensure_eq;

/// The beginning of a value: some are lists of thousands.
pub(crate) fn shown(value: &dyn std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{} ..", &text[..end]),
        None => text,
    }
}

/// How long a check may take, besides four lease terms: then it hangs.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How long what a check has left running may take to end, where its places have to be removed.
const GRACE: Duration = Duration::from_secs(2);

/// How long it may take to remove a place.
const REMOVAL: Duration = Duration::from_secs(30);

/// Runs a check in a runtime of its own, and removes its places. `None` if it was stopped.
pub(crate) fn judge(subject: &Subject, check: &'static Check, stop: &Stop) -> Option<Outcome> {
    // A clock of real time: stores with a server cannot follow a paused one.
    let runtime = match runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(Outcome::Failed(format!("no runtime: {error}"))),
    };
    let places = Places::default();
    let outcome = runtime.block_on(async {
        tokio::select! {
            biased;
            outcome = run(subject.clone(), places.clone(), check) => Some(outcome),
            () = stop.asked() => None,
        }
    });
    // A store that blocks a thread for ever must not block the suite.
    runtime.shutdown_timeout(if subject.remove.is_some() { GRACE } else { Duration::ZERO });
    match (remove(subject, &places), outcome) {
        (Err(why), Some(Outcome::Passed)) => Some(Outcome::Failed(why)),
        (Err(why), Some(Outcome::Failed(first))) => Some(Outcome::Failed(format!("{first}; {why}"))),
        (_, outcome) => outcome,
    }
}

/// In a runtime that the check cannot have spoilt.
fn remove(subject: &Subject, places: &Places) -> Result<(), String> {
    let Some(remove) = &subject.remove else { return Ok(()) };
    let told = |place: &Place, why: String| format!("its place {} could not be removed: {why}", place.name());
    for place in places.all() {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| told(&place, error.to_string()))?;
        match runtime.block_on(async { time::timeout(REMOVAL, remove(&place)).await }) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(told(&place, error.to_string())),
            Err(_) => return Err(told(&place, format!("not done within {REMOVAL:?}"))),
        }
    }
    Ok(())
}

async fn run(subject: Subject, places: Places, check: &'static Check) -> Outcome {
    let patience = subject.patience;
    let bench = match time::timeout(TIME_LIMIT, Bench::new(subject, places)).await {
        Ok(Ok(bench)) => Arc::new(bench),
        Ok(Err(error)) => return Outcome::Failed(format!("the first handle could not be opened: {error:#}")),
        Err(_) => return Outcome::Failed(format!("no handle could be opened within {TIME_LIMIT:?}")),
    };
    for need in check.needs {
        match bench.has(*need).await {
            Ok(true) => {}
            Ok(false) => return Outcome::Ignored(format!("needs {need}")),
            Err(error) => {
                return Outcome::Failed(format!("it cannot be told whether there is {need}: {error:#}"));
            }
        }
    }
    let limit = TIME_LIMIT + 4 * bench.lease_term().unwrap_or_default() + histories::more_time();
    // As a task, so that a panic of the store is a failure of this check, and of no other.
    let task = tokio::spawn(patience::LIMIT.scope(patience, (check.run)(bench)));
    match time::timeout(limit, task).await {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(error))) => match error.downcast_ref::<Unmet>() {
            Some(unmet) => Outcome::Ignored(unmet.to_string()),
            None => Outcome::Failed(format!("{error:#}")),
        },
        Ok(Err(join)) => Outcome::Failed(format!("panicked: {}", panic_text(join))),
        Err(_) => Outcome::Failed(format!("not done within {limit:?}: some call hangs")),
    }
}

fn panic_text(join: tokio::task::JoinError) -> String {
    let payload: Box<dyn Any + Send> = match join.try_into_panic() {
        Ok(payload) => payload,
        Err(join) => return join.to_string(),
    };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a text".into())
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Leases => "leases",
            Self::Durability => "durability",
            Self::SharedTransactions => "transactions shared by stores and queues",
            Self::SizeLimit => "a size limit below 64 MiB",
            Self::QueueSizeLimit => "a size limit of queues below 64 MiB",
            Self::WakeUps => "wake-ups",
        })
    }
}
