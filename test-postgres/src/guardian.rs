//! What cleans up after a process that was killed.

use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result};

/// Reads which server runs, a line for each change: the process, or nothing. At the end of its input it shuts that down
/// at once, waits until its lock file is gone, and removes the folder, all that is `$1`.
const SCRIPT: &str = r#"
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
    kill -QUIT "$pid"
    kill -CONT "$pid"
    tries=0
    while [ -e "$1/data/postmaster.pid" ] && [ $tries -lt 200 ]; do sleep 0.05; tries=$((tries + 1)); done
    [ -e "$1/data/postmaster.pid" ] && kill -KILL "$pid"
fi
rm -rf "$1"
"#;

/// Outlives this process if need be.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "guardian"]).arg(folder);
        // What interrupts this process from its terminal is not for the guardian.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(shell.spawn().context("`sh` does not start")?))
    }

    /// Says which process is the server now.
    pub(crate) fn watch(&mut self, server: Option<u32>) -> Result<()> {
        let pid = server.map(|pid| pid.to_string()).unwrap_or_default();
        let input = self.0.stdin.as_mut().context("standard input was piped")?;
        writeln!(input, "{pid}").context("the guardian is gone")
    }

    /// Waits until all is cleaned up.
    pub(crate) fn finish(&mut self) {
        // Waiting closes its input first. What it could not do, nobody can.
        drop(self.0.wait());
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.finish();
    }
}
