//! Development tasks; `cargo xtask` lists them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod cargo;
mod example;
mod machines;
mod passed;
mod postgres;
mod promises;
mod readme;
mod steps;
mod tidy;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use steps::Step;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test           everything CI runs: formatting, lints, tidiness, tests, docs, README, dependencies
  check          the quick part of it, changing nothing: formatting, lints, tidiness
  fix            formats, and applies what clippy can mend by itself
  tidy           only the checks that no other tool makes: crate edges, file sizes, forbidden calls, versions
  promises       whether the tests named in PROMISES.md passed in the last `cargo xtask test`
  bench [ARGS]   the benches; `cargo xtask bench -- --help` shows what they take
  postgres       an empty PostgreSQL server until Ctrl-C; prints its URL

The machines that `test` runs briefly, for longer; each takes one number:
";

const FORMAT: Step = Step { name: "format", run: cargo::format };
const LINT: Step = Step { name: "lint", run: cargo::lint };
const TIDY: Step = Step { name: "tidy", run: tidy::run };
const TEST: Step = Step { name: "test", run: cargo::test };
const PROMISES: Step = Step { name: "promises", run: promises::run };
const EXAMPLE: Step = Step { name: "example", run: example::run };
const DOCS: Step = Step { name: "docs", run: cargo::docs };
const README: Step = Step { name: "readme", run: readme::run };
const DENY: Step = Step { name: "deny", run: cargo::deny };

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let root = root();
    let done = match command.as_str() {
        "test" => steps::run(&root, &[FORMAT, LINT, TIDY, TEST, EXAMPLE, PROMISES, DOCS, README, DENY]),
        "check" => steps::run(&root, &[FORMAT, LINT, TIDY]),
        "tidy" => steps::run(&root, &[TIDY]),
        "promises" => steps::run(&root, &[PROMISES]),
        "fix" => cargo::fix(&root),
        "bench" => cargo::bench(&root, &rest),
        "postgres" => postgres::keep(),
        name => match machines::ALL.iter().find(|machine| machine.name == name) {
            Some(machine) => machine.run(&root, &rest),
            None => {
                eprint!("{USAGE}{}", machines::help());
                return ExitCode::from(2);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("this package is a folder of the workspace").to_owned()
}
