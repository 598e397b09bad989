//! The small file beside an SQLite file in which a delivering process says how it stands, for `status` in
//! another process. It is written when delivery starts and stops and when a breaker changes, never in between.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use postdate::{EndpointName, StoreUrl};
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

/// Where an endpoint's file is, for a store that has one.
pub(crate) fn path(url: &StoreUrl, endpoint: &EndpointName) -> Option<PathBuf> {
    let mut path = crate::session::file(url)?.into_os_string();
    path.push(format!("-status-{:016x}", digest(endpoint.as_str())));
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

    /// What the file says about the endpoint; nothing, if there is none or it is not understood.
    pub(crate) fn read(path: &Path, endpoint: &EndpointName) -> Option<Self> {
        let presence: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (presence.endpoint == endpoint.as_str()).then_some(presence)
    }
}

/// FNV-1a. An endpoint may be called what no file can be called: too long, with a slash, or like another one but
/// for case.
fn digest(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence() -> Presence {
        Presence {
            state: State::Running,
            pid: 7,
            endpoint: "postdate".to_owned(),
            mode: "TransactionScope".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            open_breakers: vec!["fetch".to_owned()],
        }
    }

    fn endpoint(name: &str) -> EndpointName {
        EndpointName::new(name).unwrap()
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db-status");
        assert_eq!(Presence::read(&path, &endpoint("postdate")), None);
        presence().write(&path).unwrap();
        assert_eq!(Presence::read(&path, &endpoint("postdate")), Some(presence()));
        assert_eq!(Presence::read(&path, &endpoint("other")), None);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn every_endpoint_has_a_file_of_its_own_whatever_it_is_called() {
        let url = StoreUrl::parse("sqlite:some/x.db").unwrap();
        let name =
            |of: &str| path(&url, &endpoint(of)).unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name("a"), "x.db-status-af63dc4c8601ec8c", "the digest of the reference");
        assert_ne!(name("orders"), name("Orders"));
        assert!(name(&"/".repeat(100)).len() < 40);
    }

    #[test]
    fn a_damaged_file_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db-status");
        fs::write(&path, "{").unwrap();
        assert_eq!(Presence::read(&path, &endpoint("postdate")), None);
    }
}
