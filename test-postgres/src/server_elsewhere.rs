//! Where no server is started.

use anyhow::{Result, bail};

use crate::{Settings, VARIABLE};

/// No server: starting one takes Unix.
#[derive(Debug)]
pub enum Server {}

impl Server {
    /// # Errors
    /// Always.
    pub fn start(_: &Settings) -> Result<Self> {
        bail!("a server for tests is started on Unix only; set {VARIABLE} to the URL of one")
    }

    /// Its URL.
    pub fn url(&self) -> String {
        match *self {}
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// Never.
    pub fn wait(&mut self) -> Result<()> {
        match *self {}
    }
}
