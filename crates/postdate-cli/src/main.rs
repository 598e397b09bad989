//! The operator's binary of postdate.

mod cli;
mod commands;
mod exit;
#[cfg(test)]
mod fuzz;
mod output;
mod presence;
mod session;
mod signals;
mod start;

fn main() -> std::process::ExitCode {
    start::start()
}
