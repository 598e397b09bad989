//! The small file beside an SQLite file in which a delivering process says how it stands, for `status` in
//! another process. It is written when delivery starts and stops and when a breaker changes, never in between.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use postdate::StoreUrl;
use serde::{Deserialize, Serialize};

/// How a delivering process stands.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Presence {
    pub(crate) state: State,
    pub(crate) pid: u32,
    pub(crate) endpoint: String,
    pub(crate) mode: String,
    /// Since when it has been in this state.
    pub(crate) since: Timestamp,
    pub(crate) open_breakers: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Running,
    Stopped,
}

/// Where the file is for a store that has one.
pub(crate) fn path(url: &StoreUrl) -> Option<PathBuf> {
    let mut path = crate::session::file(url)?.into_os_string();
    path.push("-status");
    Some(path.into())
}

impl Presence {
    /// Replaces the file as a whole, so that nobody reads half of it.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", self.pid));
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(&beside, path)
    }

    /// What the file says; nothing, if there is none or it is not understood.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db-status");
        let presence = Presence {
            state: State::Running,
            pid: 7,
            endpoint: "postdate".to_owned(),
            mode: "TransactionScope".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            open_breakers: vec!["fetch".to_owned()],
        };
        assert_eq!(Presence::read(&path), None);
        presence.write(&path).unwrap();
        assert_eq!(Presence::read(&path), Some(presence));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_damaged_file_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db-status");
        fs::write(&path, "{").unwrap();
        assert_eq!(Presence::read(&path), None);
    }
}
