//! Other people's queues: a program that does one task with one of them.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use serde::Deserialize;

use super::server::Database;
use crate::cpu::Measured;

/// Each with what it is called in the program, and in the report.
pub(super) const PGMQ: Peer = Peer { name: "pgmq", what: "pgmq 0.33: batches of 1,000" };
pub(super) const GRAPHILE: Peer =
    Peer { name: "graphile", what: "graphile_worker 0.14: local queue, batched completion" };
pub(super) const APALIS: Peer =
    Peer { name: "apalis", what: "apalis-postgres 1.0: batches of 500, all kept" };
pub(super) const FANG: Peer = Peer { name: "fang", what: "fang 0.11" };

#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    name: &'static str,
    pub(super) what: &'static str,
}

/// The program, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Peers(PathBuf);

/// A peer that waits for the start, or has done its task and has nothing to do.
pub(super) struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Outcome {
    messages: usize,
    seconds: f64,
    cpu_seconds: f64,
    lateness_ms: Vec<f64>,
}

impl Peers {
    pub(crate) fn at(program: &Path) -> Self {
        Self(program.to_owned())
    }

    /// Starts it, and lets it store what the task begins with.
    pub(super) fn start(&self, peer: Peer, database: &Database, task: &str) -> Result<Running> {
        let mut command = Command::new(&self.0);
        command.arg(peer.name).arg(database.url()).args(task.split(' '));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.0.display()))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.context("a child has no pipes")?;
        let mut running = Running { child, input, output: BufReader::new(output) };
        let ready = running.line()?;
        ensure!(ready == "ready", "{} answered {ready} instead of being ready", peer.name);
        Ok(running)
    }
}

impl Running {
    /// Lets it do its task.
    pub(super) fn run(&mut self) -> Result<Measured> {
        writeln!(self.input, "go")?;
        let line = self.line()?;
        let outcome: Outcome = serde_json::from_str(&line).with_context(|| format!("a peer said {line}"))?;
        let [elapsed, cpu] = [outcome.seconds, outcome.cpu_seconds].map(Duration::from_secs_f64);
        let late = |ms: &f64| SignedDuration::from_secs_f64(ms / 1e3);
        let lateness = outcome.lateness_ms.iter().map(late).collect();
        Ok(Measured { lateness, ..Measured::new(outcome.messages, elapsed, Some(cpu)) })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "a peer ended before its task did");
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
