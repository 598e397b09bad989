//! How a server is to be.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// How a [`Server`](crate::Server) is to be: in the system's folder for temporary files unless [`placed_in`](Self::placed_in)
/// says otherwise, with room for 500 connections.
#[derive(Clone, Debug)]
pub struct Settings {
    #[cfg_attr(not(unix), expect(dead_code, reason = "no server is started there"))]
    pub(crate) syncs: Syncs,
    pub(crate) options: Vec<(String, String)>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) place: PathBuf,
}

/// Whether the server waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncs {
    Never,
    AsInProduction,
}

impl Settings {
    /// For tests that ask what the server answers: it never waits for the disk. What is committed survives
    /// [`Server::kill`](crate::Server::kill), but no power loss.
    pub fn fast() -> Self {
        Self::new(Syncs::Never)
    }

    /// For power losses and measurements: what is committed is on the disk, as with the server's defaults.
    pub fn durable() -> Self {
        Self::new(Syncs::AsInProduction)
    }

    /// Sets a parameter of the server, such as `max_connections`. The last one of a name counts.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a variable in the environment of the server's processes.
    #[must_use]
    pub fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Has the server's folder made in this one, to choose the disk. Where root starts it, other users must be able to
    /// reach that.
    #[must_use]
    pub fn placed_in(mut self, folder: &Path) -> Self {
        folder.clone_into(&mut self.place);
        self
    }

    fn new(syncs: Syncs) -> Self {
        let mut settings =
            Self { syncs, options: Vec::new(), environment: Vec::new(), place: std::env::temp_dir() };
        settings = settings.option("max_connections", "500").option("log_line_prefix", "%m [%p] %u@%d ");
        if syncs == Syncs::Never {
            settings = settings.option("fsync", "off").option("full_page_writes", "off");
        }
        settings
    }
}
