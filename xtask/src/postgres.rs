//! A PostgreSQL server for tests, and for people.

use std::{env, process::Command};

use anyhow::{Context as _, Result, bail};
use test_postgres::{Server, Settings, VARIABLE, ensure_installed};

/// Names the backends that must have been judged.
const REQUIRE: &str = "POSTDATE_REQUIRE";

/// The server that tests use; one that was started for them ends with it.
pub(crate) struct ForTests(Option<Server>);

impl ForTests {
    /// That of the environment, or one that is started now.
    pub(crate) fn find() -> Result<Self> {
        if env::var_os(VARIABLE).is_some() {
            return Ok(Self(None));
        }
        ensure_installed()?;
        Ok(Self(Some(Server::start(&Settings::fast()).context("PostgreSQL does not start")?)))
    }

    /// Tells a command of it, and that there is no excuse for not using it.
    pub(crate) fn tell(&self, command: &mut Command) {
        if let Some(server) = &self.0 {
            command.env(VARIABLE, server.url());
        }
        let required = env::var(REQUIRE).map(|others| format!("{others},postgres"));
        command.env(REQUIRE, required.unwrap_or_else(|_| "postgres".to_owned()));
    }
}

/// Starts a server, says where it is, and keeps it until this process is interrupted.
pub(crate) fn keep() -> Result<()> {
    ensure_installed()?;
    let mut server = Server::start(&Settings::durable())?;
    println!("{}", server.url());
    eprintln!(
        "this server and its data are gone after Ctrl-C; tests use it with {VARIABLE}={}",
        server.url()
    );
    server.wait()?;
    bail!("the server has ended by itself")
}
