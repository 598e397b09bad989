//! Runs the README's commands as a reader would, in an empty folder.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo::cargo, steps::Outcome};

/// A message that the README sends five seconds ahead arrives long before this.
const PATIENCE: Duration = Duration::from_secs(60);

/// What starts the program without installing it, in the README's first command.
const UNINSTALLED: &str = "cargo run --release --bin postdate -- ";

pub(crate) fn run(root: &Path) -> Result<Outcome> {
    let binary = build(root)?;
    let readme = fs::read_to_string(root.join("README.md")).context("README.md is missing")?;
    let commands = commands(&readme);
    let folder = Folder::new(&root.join("target").join("readme"))?;
    let mut started = Vec::new();
    let (sender, received) = mpsc::channel();
    for command in &commands {
        println!("$ postdate {command}");
        let mut program = Command::new(&binary);
        program.args(words(command)?).current_dir(&folder.0).env_remove("POSTDATE_STORE");
        if stays(command) {
            started.push(Running::start(program, command, sender.clone())?);
        } else {
            let status = program.status()?;
            ensure!(status.success(), "`postdate {command}` in README.md ends with {status}");
        }
    }
    drop(sender);
    let followed = commands.iter().filter(|command| command.contains("--follow")).count();
    for _ in 0..followed {
        let line =
            received.recv_timeout(PATIENCE).context("nothing arrived where README.md follows a queue")?;
        println!("arrived: {line}");
    }
    Ok(Outcome::Note(format!("{} commands", commands.len())))
}

fn build(root: &Path) -> Result<PathBuf> {
    let mut build = cargo(root);
    build.args(["build", "--package", "postdate-cli", "--message-format", "json"]);
    let output = build.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the binary does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.context("cargo built no executable for postdate-cli")
}

/// The arguments of every `postdate` command in the README's shell blocks, in order.
fn commands(readme: &str) -> Vec<&str> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            commands.extend(line.strip_prefix(UNINSTALLED).or_else(|| line.strip_prefix("postdate ")));
        }
    }
    commands
}

/// Whether a command goes on until it is told to stop.
fn stays(command: &str) -> bool {
    command == "run" || command.contains("--follow")
}

/// Splits a command as a shell does; single quotes are all that the README uses.
fn words(command: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for (i, part) in command.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    if command.matches('\'').count() % 2 == 1 {
        bail!("README.md: a quote is not closed in `postdate {command}`");
    }
    Ok(words)
}

/// A command in the background; dropping it ends it.
struct Running(Child);

impl Running {
    /// Starts it; what it writes to standard output goes to `lines`.
    fn start(mut program: Command, command: &str, lines: mpsc::Sender<String>) -> Result<Self> {
        let mut child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("standard output was piped")?;
        let words = child.stderr.take().context("standard error was piped")?;
        let running = Self(child);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(words).lines().map_while(Result::ok) {
                eprintln!("  {line}");
                let _ = ready.send(());
            }
        });
        // Both commands that stay say a word when they are up; what comes after may need them.
        let said = is_ready.recv_timeout(PATIENCE);
        said.with_context(|| format!("`postdate {command}` in README.md did not start"))?;
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder that is empty at the start and gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(path: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(path);
        fs::create_dir_all(path)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_taken_from_shell_blocks_only() {
        let readme = "postdate no\n```sh\ncargo run --release --bin postdate -- run\ncargo xtask test\n```\n\
                      ```rust\npostdate no\n```\n```sh\npostdate list\n```\n";
        assert_eq!(commands(readme), ["run", "list"]);
    }

    #[test]
    fn quoted_words_stay_together() {
        let split = words(r#"send billing '{"invoice": 42}' --in 5s"#).unwrap();
        assert_eq!(split, ["send", "billing", r#"{"invoice": 42}"#, "--in", "5s"]);
        assert!(words("send 'x").is_err());
    }
}
