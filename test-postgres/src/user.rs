//! As whom a server runs: PostgreSQL refuses to be root.

use std::{
    os::unix::{fs::chown, process::CommandExt as _},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::install::is_root;

/// A user other than root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// Nobody else unless this process is root.
    pub(crate) fn for_server() -> Result<Option<Self>> {
        if !is_root() {
            return Ok(None);
        }
        for name in ["postgres", "nobody"] {
            if let Some(user) = Self::named(name)? {
                return Ok(Some(user));
            }
        }
        bail!("there is no user `postgres` or `nobody` to run PostgreSQL as, which refuses to be root")
    }

    /// Makes this the user that a command runs as.
    pub(crate) fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    pub(crate) fn own(self, path: &Path) -> Result<()> {
        chown(path, Some(self.uid), Some(self.gid)).with_context(|| path.display().to_string())
    }

    fn named(name: &str) -> Result<Option<Self>> {
        let id = |option| -> Result<Option<u32>> {
            let output = Command::new("id").args([option, name]).output().context("`id` does not start")?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
        };
        Ok(id("-u")?.zip(id("-g")?).map(|(uid, gid)| Self { uid, gid }))
    }
}
