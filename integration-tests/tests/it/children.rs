//! Processes that deliver on one file, and the history of what they did.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{self, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
};

use postdate::{Backend, EndpointName, TransactionMode};
use postdate_history::{Archive, Event, Guarantee, Verdict, Way, What};

use crate::scene::{Scene, rules};

/// What a child does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Stores as fast as it can and delivers.
    Busy,
    /// Delivers, but sends nothing before it is [let](Child::let_send).
    Held,
}

/// A run of several processes.
pub(crate) struct Run {
    pub scene: Scene,
    pub archive: Archive,
    mode: TransactionMode,
    name: &'static str,
    last_process: u32,
}

pub(crate) struct Child {
    pub number: u32,
    process: process::Child,
    lines: mpsc::Receiver<String>,
}

impl Run {
    pub(crate) fn new(name: &'static str, mode: TransactionMode) -> Self {
        let scene = Scene::new();
        let guarantee = match mode {
            TransactionMode::TransactionScope => Guarantee::ExactlyOnce,
            _ => Guarantee::AtLeastOnce,
        };
        let archive = Archive::begin(scene.folder().join("history"), rules(guarantee, 0)).unwrap();
        Self { scene, archive, mode, name, last_process: 0 }
    }

    pub(crate) fn start(&mut self, role: Role) -> Child {
        self.last_process += 1;
        let number = self.last_process;
        let role = match role {
            Role::Busy => "busy",
            Role::Held => "held",
        };
        let mut process = Command::new(env!("CARGO_BIN_EXE_dispatcher-child"))
            .args([self.scene.path(), self.archive.file_of(number)])
            .args([number.to_string(), self.mode.to_string(), role.to_owned()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = read(process.stdout.take().unwrap());
        Child { number, process, lines }
    }

    /// Kills it; answers how many messages it still said were acknowledged.
    pub(crate) fn kill(&self, mut child: Child) -> usize {
        child.process.kill().unwrap();
        child.process.wait().unwrap();
        self.archive.died(child.number).unwrap();
        child.lines.iter().count()
    }

    /// What the children have fetched of which there was something: who dispatched.
    pub(crate) fn dispatchers(&self) -> BTreeSet<u32> {
        let fetched = |event: &Event| matches!(event.what, What::Fetched { .. });
        let has_fetched = |process: &u32| self.archive.history_of(*process).unwrap().iter().any(fetched);
        (1..=self.last_process).filter(has_fetched).collect()
    }

    /// Everything has been delivered: judges what happened.
    pub(crate) async fn judge(self) -> Verdict {
        let endpoint = EndpointName::new("kill").unwrap();
        let store = self.scene.open().await.open(&endpoint, TransactionMode::None).await.unwrap();
        assert_eq!(store.stats().await.unwrap().pending, 0);
        self.archive.record(What::Audited { ids: Vec::new() });
        let mut arrived = Vec::new();
        for (queue, way) in [("billing", Way::Destination), ("error", Way::ErrorQueue)] {
            let queued = self.scene.queued(queue).await;
            arrived.extend(queued.iter().map(|queued| Event::arrived(queued, way)));
        }
        self.archive.judge(arrived, &kept(self.name)).unwrap()
    }
}

/// Where a history is kept that breaks a promise.
pub(crate) fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.jsonl"))
}

impl Child {
    /// The id of the next acknowledged message. None at its end.
    pub(crate) fn line(&self) -> Option<String> {
        self.lines.recv().ok()
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// It may send now.
    pub(crate) fn let_send(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"!").unwrap();
    }

    /// It is to send nothing more of its own, and to end when everything is delivered.
    pub(crate) fn end_input(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> ExitStatus {
        self.end_input();
        self.process.wait().unwrap()
    }
}

/// Reads all the time: a process whose output nobody reads stands still. A line without an end was cut off by a kill.
fn read(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.read_line(&mut line).is_ok_and(|length| length > 0) {
            if let Some(id) = line.strip_suffix('\n') {
                sender.send(id.to_owned()).ok();
            }
            line.clear();
        }
    });
    lines
}

impl Drop for Child {
    fn drop(&mut self) {
        // A test that failed should leave none behind, not even one that is paused.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
