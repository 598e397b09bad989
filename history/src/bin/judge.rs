//! Judges histories: `judge FILE..` merges them by time and prints the verdict. Fails if a promise is broken.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::{path::Path, process::ExitCode};

use anyhow::{Result, ensure};
use postdate_history::{file, judge};

fn main() -> Result<ExitCode> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    ensure!(!files.is_empty(), "usage: judge FILE..");
    let histories = files.iter().map(|file| file::read(Path::new(file))).collect::<Result<Vec<_>>>()?;
    let verdict = judge(&file::merge(histories))?;
    println!("{verdict}");
    Ok(if verdict.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
