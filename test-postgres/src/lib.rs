//! Real PostgreSQL servers for tests, benches and development tasks.
//!
//! A [`Server`] has a folder, a port and a password of its own, never the machine's cluster. It and its folder go when
//! it is dropped, and also when the process that started it is killed: a guardian, a shell whose standard input is a
//! pipe from that process, cleans up once the pipe is closed.
//!
//! Tests that need no server to themselves ask [`url`] for one that all share.

#[cfg(unix)]
mod guardian;
mod install;
#[cfg(unix)]
mod processes;
#[cfg(unix)]
mod server;
#[cfg(not(unix))]
#[path = "server_elsewhere.rs"]
mod server;
mod settings;
#[cfg(unix)]
mod user;

use std::{env, sync::OnceLock};

pub use install::ensure_installed;
pub use server::Server;
pub use settings::Settings;

/// Names the variable with the URL of a server that is there already: its user may create schemas.
pub const VARIABLE: &str = "POSTDATE_TEST_POSTGRES";

/// The server for tests: that of [`VARIABLE`] if it is set, else one that is started at the first call and stays
/// until the process ends. Take a schema of your own in it.
///
/// # Panics
/// When the variable is not set and no server starts. A test without its server has failed: it is never skipped.
pub fn url() -> String {
    static STARTED: OnceLock<Result<Server, String>> = OnceLock::new();
    if let Ok(url) = env::var(VARIABLE) {
        return url;
    }
    let started =
        STARTED.get_or_init(|| Server::start(&Settings::fast()).map_err(|error| format!("{error:#}")));
    match started {
        Ok(server) => server.url(),
        Err(error) => panic!("no PostgreSQL for tests: {error}"),
    }
}
