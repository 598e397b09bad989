//! The process that is killed.

use std::{
    env,
    fmt::Display,
    future::pending,
    io::{BufRead, BufReader, Lines, Write, stdout},
    process::{self, ChildStdout, Command, ExitCode, Stdio},
    sync::Arc,
};

use futures::future::join_all;
use postdate_core::{
    Backend, DelayedMessageStoreExt, Dispatcher, MessageId, OutgoingMessage, Queues, TransactionMode,
};
use postdate_history::{RecordedBackend, RecordedDispatcher, Way, file::Recorder};
use postdate_sqlite::Sqlite;
use tokio::runtime::Runtime;

use crate::{
    place::{BACKLOG, Place, limit, message, orders},
    run::Run,
};

const ROLE: &str = "POSTDATE_CRASH_ROLE";
const FILE: &str = "POSTDATE_CRASH_FILE";
const HISTORY: &str = "POSTDATE_CRASH_HISTORY";
const PROCESS: &str = "POSTDATE_CRASH_PROCESS";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Four tasks store messages one by one, and each says which it was told is stored.
    Store,
    /// Sends in small batches and says so after each; sending and removing are one transaction.
    DrainInOneTransaction,
    /// The same with two.
    Drain,
    /// Fetches everything, says how much that is, and keeps it.
    Hold,
}

/// A running child. What it says are lines on its standard output; an error ends it with a line.
pub(crate) struct Child {
    process: process::Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(role: Role, place: &Place) -> Self {
        Self::spawn(Command::new(env::current_exe().unwrap()), role, place)
    }

    /// Of process `number` of a run, which writes its history.
    pub(crate) fn start_in(run: &Run, number: u32, role: Role) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(HISTORY, run.archive.file_of(number)).env(PROCESS, number.to_string());
        Self::spawn(command, role, &run.place)
    }

    /// As a user who owns nothing.
    #[cfg(unix)]
    pub(crate) fn start_as_nobody(role: Role, place: &Place) -> Self {
        use std::{fs, os::unix::process::CommandExt};

        let mut command = Command::new(env::current_exe().unwrap());
        let is_superuser =
            fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        if is_superuser {
            command.uid(65_534);
        }
        Self::spawn(command, role, place)
    }

    fn spawn(mut command: Command, role: Role, place: &Place) -> Self {
        command.env(ROLE, format!("{role:?}")).env(FILE, place.path()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The next thing it says.
    pub(crate) fn line(&mut self) -> String {
        self.lines.next().expect("the child should say something").unwrap()
    }

    /// Kills it once it has said so much; answers with all that it said until its end.
    pub(crate) fn kill_after(mut self, count: usize) -> Vec<String> {
        let mut said: Vec<_> = (0..count).map(|_| self.line()).collect();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let mut rest: Vec<_> = self.lines.by_ref().map(Result::unwrap).collect();
        said.append(&mut rest);
        said
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may be dead already, and a test that failed should leave none behind.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Plays the role that this process was given, if any.
pub(crate) fn play() -> Option<ExitCode> {
    let role = env::var(ROLE).ok()?;
    Runtime::new().unwrap().block_on(async {
        match Sqlite::open(env::var_os(FILE).unwrap()).await {
            Ok(sqlite) => match env::var_os(HISTORY) {
                Some(history) => {
                    let process = env::var(PROCESS).unwrap().parse().unwrap();
                    act_recorded(&role, &sqlite, Recorder::open(history.as_ref(), Some(process)).unwrap())
                        .await;
                }
                None => hold(&sqlite).await,
            },
            Err(error) => say(error),
        }
    });
    Some(ExitCode::SUCCESS)
}

async fn act_recorded(role: &str, sqlite: &Sqlite, recorder: Recorder) {
    let recorder = Arc::new(recorder);
    let recorded = RecordedBackend::new(sqlite.clone(), recorder.clone());
    let dispatcher = RecordedDispatcher::new(sqlite.queues().dispatcher(), Way::Destination, recorder);
    match role {
        "Store" => store_for_ever(&recorded).await,
        "DrainInOneTransaction" => drain(&recorded, &dispatcher, TransactionMode::TransactionScope).await,
        "Drain" => drain(&recorded, &dispatcher, TransactionMode::ReceiveOnly).await,
        other => panic!("there is no role {other:?}"),
    }
}

async fn hold(sqlite: &Sqlite) {
    let store = orders(sqlite, TransactionMode::ReceiveOnly).await;
    let batch = store.fetch(limit(BACKLOG)).await.unwrap();
    say(batch.messages.len());
    pending().await
}

async fn store_for_ever(backend: &dyn Backend) {
    let store = orders(backend, TransactionMode::ReceiveOnly).await;
    let tasks = (0..4).map(|_| async {
        loop {
            let message = message();
            let id = message.message.id.clone();
            store.store_one(message).await.unwrap();
            say(id);
        }
    });
    join_all(tasks).await;
}

async fn drain(backend: &dyn Backend, dispatcher: &dyn Dispatcher, mode: TransactionMode) {
    let store = orders(backend, mode).await;
    loop {
        let mut batch = store.fetch(limit(10)).await.unwrap();
        let sends: Vec<OutgoingMessage> = batch.messages.iter().map(|due| due.message.clone()).collect();
        let outcomes = dispatcher.dispatch(&sends, batch.claim.enlist()).await;
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        let ids: Vec<MessageId> = sends.into_iter().map(|send| send.id).collect();
        batch.claim.remove(&ids).await.unwrap();
        batch.claim.commit().await.unwrap();
        say(ids.len());
    }
}

fn say(what: impl Display) {
    let mut out = stdout().lock();
    writeln!(out, "{what}").unwrap();
    out.flush().unwrap();
}
