//! What a check needs done behind the back of a store.

use std::{error::Error, fmt, sync::Arc};

use futures::future::BoxFuture;
use postdate_core::{EndpointName, MessageId};

use crate::Place;

/// Something that no call of a store brings about. The author of a store does it for the suite by another way:
/// a statement on a raw connection, or a note in [`Place::shared`] for the handles that are opened afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meddling {
    /// Damages a stored message so that it can be found by its id and not be read: an empty destination, say.
    /// Its place in the order stays.
    UnreadableRow {
        /// The endpoint whose message it is.
        endpoint: EndpointName,
        /// The message.
        id: MessageId,
    },
    /// Marks the schema as that of a newer postdate.
    NewerSchema,
    /// Takes that mark away again.
    CurrentSchema,
    /// Makes of the place what an older postdate would have left, with the messages that are in it.
    OlderSchema,
    /// From now on handles are those of a user who may read and write rows, and make no tables.
    NoRightToMakeTables,
    /// From now on the sessions of new handles are in this time zone, a name of the IANA database.
    SessionTimeZone(&'static str),
    /// Ends the transactions of all claims that are held now, as a server does whose connection to a client breaks, or
    /// that a client has left idle for too long.
    BrokenClaims,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Meddled {
    /// It is done.
    Done,
    /// This store knows no such thing, and why: the checks that need it are shown as ignored.
    Impossible(&'static str),
}

/// Does what a check needs.
pub(crate) type Meddle = Arc<
    dyn Fn(&Place, Meddling) -> BoxFuture<'static, Result<Meddled, Box<dyn Error + Send + Sync>>>
        + Send
        + Sync,
>;

/// A check found out that it does not apply.
#[derive(Debug)]
pub(crate) struct Unmet(pub(crate) String);

impl fmt::Display for Meddling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnreadableRow { .. } => "an unreadable row",
            Self::NewerSchema | Self::CurrentSchema => "a newer schema",
            Self::OlderSchema => "an older schema",
            Self::NoRightToMakeTables => "a user who may make no tables",
            Self::SessionTimeZone(_) => "sessions in a time zone",
            Self::BrokenClaims => "claims in transactions that break",
        })
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Unmet {}
