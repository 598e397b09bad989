//! Who delivers, as far as can be told from outside.

use std::fmt;

use jiff::Timestamp;
use postdate::Dispatching;
use serde::Serialize;

use crate::{
    exit::Failure,
    output::time::with_relative,
    presence::{self, Presence, State},
    session::Session,
};

/// Who delivers, and what it last said about itself.
#[derive(Debug, Serialize)]
pub(super) struct Dispatcher {
    pub(super) delivery: Delivery,
    pid: Option<u32>,
    mode: Option<String>,
    since: Option<Timestamp>,
    pub(super) open_breakers: Vec<String>,
}

/// Whether anybody delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Delivery {
    Running,
    Stopped,
    /// Nobody does, and whoever did last never said that it stopped.
    Crashed,
    /// This store does not tell.
    Unknown,
}

impl Dispatcher {
    pub(super) async fn of(session: &Session) -> Result<Self, Failure> {
        let dispatching = session.backend.dispatching(&session.endpoint).await?;
        let file = presence::path(&session.url, &session.endpoint);
        let presence = file.and_then(|file| Presence::read(&file, &session.endpoint));
        Ok(Self::new(dispatching, presence))
    }

    fn new(dispatching: Dispatching, presence: Option<Presence>) -> Self {
        let said_running = presence.as_ref().is_some_and(|presence| presence.state == State::Running);
        let delivery = match dispatching {
            Dispatching::Here | Dispatching::Elsewhere => Delivery::Running,
            Dispatching::Nobody if said_running => Delivery::Crashed,
            Dispatching::Nobody => Delivery::Stopped,
            _ => Delivery::Unknown,
        };
        // A program of its own that delivers writes no presence: then the file is about somebody before it.
        let presence = presence.filter(|_| said_running == (delivery != Delivery::Stopped));
        let open_breakers = match (&presence, delivery) {
            (Some(presence), Delivery::Running) => presence.open_breakers.clone(),
            _ => Vec::new(),
        };
        Self {
            delivery,
            pid: presence.as_ref().map(|presence| presence.pid),
            mode: presence.as_ref().map(|presence| presence.mode.clone()),
            since: presence.as_ref().map(|presence| presence.since),
            open_breakers,
        }
    }
}

impl fmt::Display for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.delivery {
            Delivery::Running => "running",
            Delivery::Stopped => "not running; `postdate run` starts one",
            Delivery::Crashed => "not running: it ended without a word; `postdate run` starts another",
            Delivery::Unknown => "unknown: this store does not tell",
        })?;
        if self.delivery != Delivery::Running {
            return Ok(());
        }
        if let (Some(pid), Some(mode), Some(since)) = (self.pid, &self.mode, self.since) {
            write!(f, ", process {pid}, {mode}, since {}", with_relative(since, Timestamp::now()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(state: State) -> Option<Presence> {
        Some(Presence {
            state,
            pid: 7,
            endpoint: "postdate".to_owned(),
            mode: "TransactionScope".to_owned(),
            since: Timestamp::UNIX_EPOCH,
            open_breakers: vec!["fetch".to_owned()],
        })
    }

    #[test]
    fn the_store_is_believed_before_the_file() {
        for (dispatching, presence, delivery, pid, breakers) in [
            (Dispatching::Elsewhere, said(State::Running), Delivery::Running, Some(7), 1),
            (Dispatching::Elsewhere, said(State::Stopped), Delivery::Running, None, 0),
            (Dispatching::Elsewhere, None, Delivery::Running, None, 0),
            (Dispatching::Nobody, said(State::Running), Delivery::Crashed, Some(7), 0),
            (Dispatching::Nobody, said(State::Stopped), Delivery::Stopped, Some(7), 0),
            (Dispatching::Nobody, None, Delivery::Stopped, None, 0),
            (Dispatching::Unknown, None, Delivery::Unknown, None, 0),
        ] {
            let dispatcher = Dispatcher::new(dispatching, presence);
            assert_eq!((dispatcher.delivery, dispatcher.pid), (delivery, pid), "{dispatching:?}");
            assert_eq!(dispatcher.open_breakers.len(), breakers, "{dispatching:?}");
        }
    }
}
