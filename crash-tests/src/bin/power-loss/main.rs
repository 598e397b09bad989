//! Lets the power go off under a store, on a real file system.
//!
//! `power-loss [--rounds N] [--seed N]` makes an ext4 file system in a file, has a process of its own store and
//! deliver on it, shuts the file system down under that process without letting it write anything back, mounts it
//! again, and looks whether everything that was acknowledged is there exactly once. Then the same with a store that
//! survives process crashes only, where losses must be seen. All that with SQLite, and then with PostgreSQL. Needs
//! root, loop devices, `mkfs.ext4` and PostgreSQL; ends with 0 if all is well, 1 if not, and 77 where it cannot run.

#![cfg_attr(target_os = "linux", expect(clippy::print_stdout, reason = "a program for the terminal"))]
#![expect(clippy::print_stderr, reason = "a program for the terminal")]

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod island;
#[cfg(target_os = "linux")]
mod kind;
#[cfg(target_os = "linux")]
mod round;
#[cfg(target_os = "linux")]
mod shutdown;

use std::process::ExitCode;

/// As test drivers have it: not run.
const CANNOT_RUN: u8 = 77;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("child") => child::run(&args[1..]).map(|()| ExitCode::SUCCESS),
        _ => Options::read(&args).and_then(|options| run(&options)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("cannot run: this needs Linux");
    ExitCode::from(CANNOT_RUN)
}

#[cfg(target_os = "linux")]
struct Options {
    rounds: u32,
    seed: u64,
}

#[cfg(target_os = "linux")]
impl Options {
    fn read(args: &[String]) -> anyhow::Result<Self> {
        let mut options = Self { rounds: 10, seed: u64::from(std::process::id()) };
        for pair in args.chunks(2) {
            match pair {
                [name, value] if name == "--rounds" => options.rounds = value.parse()?,
                [name, value] if name == "--seed" => options.seed = value.parse()?,
                _ => anyhow::bail!("usage: power-loss [--rounds N] [--seed N]"),
            }
        }
        Ok(options)
    }
}

#[cfg(target_os = "linux")]
fn run(options: &Options) -> anyhow::Result<ExitCode> {
    use kind::{Commits, Kind};
    use postdate::sqlite::Durability;

    let mut island = match island::Island::make() {
        Ok(island) => island,
        Err(error) => {
            eprintln!("cannot run: {error:#}");
            return Ok(ExitCode::from(CANNOT_RUN));
        }
    };
    println!("seed {}", options.seed);
    let mut chance = crash_tests::Chance::new(options.seed);
    for (durable, contrast) in [
        (Kind::Sqlite(Durability::PowerLoss), Kind::Sqlite(Durability::ProcessCrash)),
        (Kind::Postgres(Commits::WhenOnDisk), Kind::Postgres(Commits::Before)),
    ] {
        let durable = round::rounds(&mut island, durable, options.rounds, &mut chance)?;
        println!("{durable}");
        let contrast = round::rounds(&mut island, contrast, 2, &mut chance)?;
        println!("{contrast}");
        if !durable.is_sound() {
            eprintln!("error: acknowledged messages are lost or doubled, or the store is damaged");
            return Ok(ExitCode::FAILURE);
        }
        if !contrast.has_lost() {
            eprintln!("error: nothing was lost where losses are certain: the power did not really go off");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
