//! A suite of checks for one backend.

use std::{env, error::Error, fmt, process::ExitCode, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use libtest_mimic::{Arguments, Completion, Conclusion, Trial};
use postdate_core::{Backend, Queues, StoreError};

use crate::{
    Place, check_environment, checks,
    harness::{self, Check, Outcome},
    judge::Stop,
    meddling::{Meddle, Meddled, Meddling},
    patience, queue_checks,
};

/// The checks for a backend: for its stores, for its queues, or for both in one place.
///
/// ```no_run
/// # use std::{process::ExitCode, sync::Arc, time::Duration};
/// # use postdate_core::{Backend, Memory, Queues};
/// # use postdate_conformance::Suite;
/// fn main() -> ExitCode {
///     Suite::new("memory")
///         .stores(|place| {
///             let memory = place.shared(Memory::new);
///             async move { Ok(Arc::new(memory) as Arc<dyn Backend>) }
///         })
///         .queues(|place| {
///             let memory = place.shared(Memory::new);
///             async move { Ok(Arc::new(memory.queues()) as Arc<dyn Queues>) }
///         })
///         .run()
/// }
/// ```
pub struct Suite {
    name: String,
    subject: Subject,
}

/// So many checks at once, unless the arguments say otherwise: most of a check is waiting.
const AT_ONCE: usize = 8;

/// What is judged.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) stores: Option<Open<dyn Backend>>,
    pub(crate) queues: Option<Open<dyn Queues>>,
    pub(crate) remove: Option<Remove>,
    pub(crate) wakes: bool,
    pub(crate) meddle: Option<Meddle>,
    pub(crate) patience: Duration,
    /// The command that repeats a check, but for the check's name.
    pub(crate) repeat: Arc<str>,
}

/// Removes what is in a place.
pub(crate) type Remove =
    Arc<dyn Fn(&Place) -> BoxFuture<'static, Result<(), StoreError>> + Send + Sync + 'static>;

/// Opens a handle on a place.
pub(crate) type Open<T> =
    Arc<dyn Fn(&Place) -> BoxFuture<'static, Result<Arc<T>, StoreError>> + Send + Sync + 'static>;

/// Says that a backend cannot be judged here, and why: its server is not there, say. An error where
/// `POSTDATE_REQUIRE` names the backend.
pub fn absent(name: &str, why: &str) -> ExitCode {
    say(&format!("{name}: no check was run: {why}"));
    if is_required(name) { nothing_judged(name) } else { ExitCode::SUCCESS }
}

impl Suite {
    /// A suite without checks for the backend of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let patience = patience::USUAL_LIMIT;
        let package = env::var("CARGO_PKG_NAME").map(|name| format!(" -p {name}")).unwrap_or_default();
        let repeat = format!("cargo test{package} --").into();
        let subject =
            Subject { stores: None, queues: None, remove: None, wakes: true, meddle: None, patience, repeat };
        Self { name: name.into(), subject }
    }

    /// Adds the checks for a store; `open` opens a handle on a place.
    #[must_use]
    pub fn stores<F, Opening>(mut self, open: F) -> Self
    where
        F: Fn(&Place) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = Result<Arc<dyn Backend>, StoreError>> + Send + 'static,
    {
        self.subject.stores = Some(Arc::new(move |place| Box::pin(open(place))));
        self
    }

    /// Adds the checks for queues; `open` opens a handle on a place, which is also that of the store if there
    /// is one.
    #[must_use]
    pub fn queues<F, Opening>(mut self, open: F) -> Self
    where
        F: Fn(&Place) -> Opening + Send + Sync + 'static,
        Opening: Future<Output = Result<Arc<dyn Queues>, StoreError>> + Send + 'static,
    {
        self.subject.queues = Some(Arc::new(move |place| Box::pin(open(place))));
        self
    }

    /// Says how to remove what was made in a place other than files in [`Place::dir`]: a schema, say. Called after
    /// each check in a runtime of its own, whatever came of the check and whether or not there is something.
    #[must_use]
    pub fn removing<F, Removing>(mut self, remove: F) -> Self
    where
        F: Fn(&Place) -> Removing + Send + Sync + 'static,
        Removing: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        self.subject.remove = Some(Arc::new(move |place| Box::pin(remove(place))));
        self
    }

    /// Says that `changed` never completes, because the backend cannot tell: what would wait for it is ignored.
    #[must_use]
    pub fn without_wake_ups(mut self) -> Self {
        self.subject.wakes = false;
        self
    }

    /// Sets how long a check waits for what has to come. Default: 15 seconds.
    #[must_use]
    pub fn patience(mut self, limit: Duration) -> Self {
        self.subject.patience = limit;
        self
    }

    /// Sets the command that failures name to repeat them; the name of the check is added at its end. Default:
    /// `cargo test`, with the package.
    #[must_use]
    pub fn repeated_by(mut self, command: &str) -> Self {
        self.subject.repeat = command.into();
        self
    }

    /// Adds what the seams cannot do: `meddle` does it on a place that a store has set up.
    ///
    /// ```
    /// # use postdate_conformance::{Meddled, Meddling, Suite};
    /// Suite::new("acme").meddling(|place, meddling| {
    ///     let path = place.dir().join("acme.db");
    ///     async move {
    ///         Ok(match meddling {
    ///             Meddling::UnreadableRow { endpoint, id } => {
    ///                 // Overwrites a part of the row in the file at `path`.
    /// #               let _ = (path, endpoint, id);
    ///                 Meddled::Done
    ///             }
    ///             Meddling::NoRightToMakeTables => Meddled::Impossible("files have no rights on tables"),
    ///             _ => Meddled::Impossible("not done yet"),
    ///         })
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn meddling<F, Doing>(mut self, meddle: F) -> Self
    where
        F: Fn(&Place, Meddling) -> Doing + Send + Sync + 'static,
        Doing: Future<Output = Result<Meddled, Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        self.subject.meddle = Some(Arc::new(move |place, meddling| Box::pin(meddle(place, meddling))));
        self
    }

    /// Judges as the arguments of the process say, which are those of the standard test harness.
    pub fn run(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        arguments.test_threads.get_or_insert(AT_ONCE);
        if let Err(error) = check_environment() {
            say(&format!("{}: {error}", self.name));
            return ExitCode::FAILURE;
        }
        let trials = self.all().map(|check| self.trial(check)).collect();
        let conclusion = libtest_mimic::run(&arguments, trials);
        if is_required(&self.name) && judged_nothing(&arguments, &conclusion) {
            return nothing_judged(&self.name);
        }
        conclusion.exit_code()
    }

    /// Judges by one check. Must not be called within a runtime.
    pub fn check(&self, name: &str) -> Outcome {
        let judged =
            self.all().find(|check| check.name == name).map(|check| self.judge_by(check, &Stop::new()));
        judged.flatten().unwrap_or_else(|| Outcome::Failed(format!("there is no check called {name}")))
    }

    pub(crate) fn judge_by(&self, check: &'static Check, stop: &Stop) -> Option<Outcome> {
        harness::judge(&self.subject, check, stop)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Check> + use<> {
        let stores = self.subject.stores.is_some().then(checks::all);
        let queues = self.subject.queues.is_some().then(queue_checks::all);
        stores.into_iter().flatten().chain(queues.into_iter().flatten())
    }

    fn trial(&self, check: &'static Check) -> Trial {
        let subject = self.subject.clone();
        Trial::ignorable_test(format!("{}::{}", self.name, check.name), move || {
            match harness::judge(&subject, check, &Stop::new()) {
                Some(Outcome::Passed) => Ok(Completion::Completed),
                Some(Outcome::Ignored(missing)) => Ok(Completion::ignored_with(missing)),
                Some(Outcome::Failed(why)) => Err(why.into()),
                None => Err("it was stopped".into()),
            }
        })
    }
}

impl fmt::Debug for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Whether a run of everything came to nothing. A run of a part says nothing about the whole: cargo-nextest runs
/// each check by itself.
fn judged_nothing(arguments: &Arguments, conclusion: &Conclusion) -> bool {
    let whole =
        !arguments.list && !arguments.ignored && arguments.filter.is_none() && arguments.skip.is_empty();
    whole && conclusion.num_passed + conclusion.num_failed == 0
}

fn is_required(name: &str) -> bool {
    env::var("POSTDATE_REQUIRE").is_ok_and(|names| names_one(&names, name))
}

fn names_one(names: &str, name: &str) -> bool {
    names.split(',').any(|required| required.trim() == name)
}

fn nothing_judged(name: &str) -> ExitCode {
    say(&format!("{name}: POSTDATE_REQUIRE names it, and nothing was judged"));
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "a test harness speaks to whoever started it")]
fn say(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for check in checks::all().chain(queue_checks::all()) {
            assert!(names.insert(check.name), "{} is there twice", check.name);
        }
    }

    #[test]
    fn a_run_of_everything_in_which_nothing_was_judged_is_noticed() {
        let conclusion = |num_passed, num_failed| Conclusion {
            num_filtered_out: 0,
            num_passed,
            num_failed,
            num_ignored: 3,
            num_measured: 0,
        };
        let whole = Arguments::default();
        assert!(judged_nothing(&whole, &conclusion(0, 0)));
        assert!(!judged_nothing(&whole, &conclusion(1, 0)) && !judged_nothing(&whole, &conclusion(0, 1)));
        for part in [
            Arguments { list: true, ..Arguments::default() },
            Arguments { ignored: true, ..Arguments::default() },
            Arguments { filter: Some("x".into()), exact: true, ..Arguments::default() },
            Arguments { skip: vec!["x".into()], ..Arguments::default() },
        ] {
            assert!(!judged_nothing(&part, &conclusion(0, 0)), "{part:?}");
        }
    }

    #[test]
    fn a_backend_is_required_by_its_whole_name() {
        assert!(names_one("postgres", "postgres") && names_one("sqlite, postgres", "postgres"));
        assert!(!names_one("", "postgres") && !names_one("postgres-15", "postgres"));
    }
}
