//! A directory with a store of its own, and the binary to use it.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

/// Nothing here takes longer, however busy the machine is.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// What a run of the binary said and how it ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A binary that is running. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postdate"));
        command.args(args).current_dir(self.path()).env("TZ", "UTC").stdin(Stdio::null());
        for name in ["POSTDATE_STORE", "POSTDATE_TRANSPORT", "POSTDATE_ENDPOINT"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// Runs and insists on success.
    pub(crate) fn ok(&self, args: &[&str]) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        ran
    }

    /// Runs with `--json` and insists on success. One value per line.
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        self.ok(&[args, &["--json"]].concat()).json()
    }

    /// Runs with `--json` and insists on one value.
    pub(crate) fn one(&self, args: &[&str]) -> Value {
        let mut values = self.json(args);
        assert_eq!(values.len(), 1, "{args:?}: {values:?}");
        values.remove(0)
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = lines(child.stdout.take().unwrap());
        let stderr = lines(child.stderr.take().unwrap());
        Running { child, stdout, stderr }
    }

    /// Starts delivery and waits until it is under way.
    pub(crate) fn deliver(&self, args: &[&str]) -> Running {
        let running = self.start(&[&["run"], args].concat());
        running.hears("Ctrl-C");
        running
    }

    /// Asks until the answer is as wished.
    pub(crate) fn until(&self, args: &[&str], wished: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let values = self.json(args);
            if wished(&values) {
                return values;
            }
            assert!(Instant::now() < deadline, "{args:?} still answers {values:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Ran {
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Running {
    /// Waits for a line on standard error that contains `words`.
    pub(crate) fn hears(&self, words: &str) -> String {
        wait_for(&self.stderr, words)
    }

    /// Waits for a line on standard output that contains `words`.
    pub(crate) fn reads(&self, words: &str) -> String {
        wait_for(&self.stdout, words)
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end and answers with the exit code, if it was no signal that ended it.
    pub(crate) fn ends(mut self) -> Option<i32> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    receiver
}

fn wait_for(lines: &Receiver<String>, words: &str) -> String {
    let deadline = Instant::now() + DEADLINE;
    let mut heard = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.contains(words) => return line,
            Ok(line) => heard.push(line),
            Err(_) => panic!("no {words:?} in {heard:?}"),
        }
    }
}
