//! The processes of a server.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// How long a killed process may take to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// What `ps` says of a process.
struct Process {
    pid: u32,
    parent: u32,
    is_dead: bool,
}

/// Kills the process and all its children as one: none of them sees another one die.
pub(crate) fn kill_all(postmaster: u32) -> Result<()> {
    // It starts no more of them.
    signal(postmaster, Signal::STOP)?;
    let mut killed: Vec<u32> = children(postmaster)?;
    killed.push(postmaster);
    for pid in &killed {
        // A child may have ended by itself.
        drop(signal(*pid, Signal::KILL));
    }
    let deadline = Instant::now() + PATIENCE;
    while all()?.iter().any(|process| killed.contains(&process.pid) && !process.is_dead) {
        ensure!(Instant::now() < deadline, "a killed server goes on for {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

pub(crate) fn children(of: u32) -> Result<Vec<u32>> {
    Ok(all()?.into_iter().filter(|process| process.parent == of).map(|process| process.pid).collect())
}

pub(crate) fn signal(pid: u32, signal: Signal) -> Result<()> {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process has a number")?;
    kill_process(known, signal).with_context(|| format!("process {pid}"))
}

fn all() -> Result<Vec<Process>> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,ppid=,stat="]).output();
    let output = output.context("`ps` does not start; install procps")?;
    String::from_utf8_lossy(&output.stdout).lines().map(process).collect()
}

fn process(line: &str) -> Result<Process> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [pid, parent, state] = words[..] else { bail!("`ps` says {line:?}") };
    Ok(Process { pid: pid.parse()?, parent: parent.parse()?, is_dead: state.starts_with('Z') })
}
