//! Whether this process delivers or stands by, and what it leaves beside the store for others to read.

use std::path::PathBuf;

use jiff::Timestamp;
use postdate::{BreakerName, Dispatching, TransactionMode};

use super::events::Happened;
use crate::{
    presence::{self, Presence, State},
    session::Session,
};

#[derive(Debug)]
pub(super) struct Standing<'a> {
    session: &'a Session,
    turn: Turn,
    presence: Presence,
    file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    NotYetKnown,
    StandingBy,
    Delivering,
}

impl<'a> Standing<'a> {
    pub(super) fn new(session: &'a Session, mode: TransactionMode) -> Self {
        let presence = Presence {
            state: State::Running,
            pid: std::process::id(),
            endpoint: session.endpoint.to_string(),
            mode: mode.to_string(),
            since: Timestamp::now(),
            open_breakers: Vec::new(),
        };
        Self {
            session,
            turn: Turn::NotYetKnown,
            presence,
            file: presence::path(&session.url, &session.endpoint),
        }
    }

    pub(super) fn delivers(&self) -> bool {
        self.turn == Turn::Delivering
    }

    /// Finds out whose turn it is, and says so where that is news.
    pub(super) async fn ask(&mut self) -> Option<Happened> {
        let before = self.turn;
        // A store that does not answer is what the breakers of the delivery report.
        match self.session.backend.dispatching(&self.session.endpoint).await.ok()? {
            Dispatching::Elsewhere => self.turn = Turn::StandingBy,
            // Ours in a moment.
            Dispatching::Nobody => {}
            _ => {
                self.turn = Turn::Delivering;
                self.presence.since = Timestamp::now();
                self.publish();
            }
        }
        match (before, self.turn) {
            (Turn::NotYetKnown, Turn::StandingBy) => Some(Happened::StandingBy),
            (Turn::StandingBy, Turn::Delivering) => Some(Happened::TookOver),
            _ => None,
        }
    }

    pub(super) fn breakers(&mut self, tripped: &[BreakerName]) {
        self.presence.open_breakers = tripped.iter().map(BreakerName::to_string).collect();
        self.publish();
    }

    pub(super) fn stopped(mut self) {
        self.presence.state = State::Stopped;
        self.presence.since = Timestamp::now();
        self.presence.open_breakers.clear();
        self.publish();
    }

    /// Others only look here to know more: not being able to write it stops nothing.
    fn publish(&self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.delivers())
            && let Err(error) = self.presence.write(file)
        {
            tracing::warn!(file = %file.display(), %error, "cannot tell others how delivery stands");
        }
    }
}
