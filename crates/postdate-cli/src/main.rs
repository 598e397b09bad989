//! The operator's binary of postdate.

mod cli;
mod commands;
mod exit;
mod output;
mod presence;
mod session;
mod signals;
mod start;

fn main() -> std::process::ExitCode {
    start::start()
}
