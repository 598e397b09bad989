//! How a run ends: the exit code and the one error that explains it.

use std::{error::Error, fmt, io};

use postdate::{ConnectError, InvalidName, InvalidStoreUrl, StoreError, StoreErrorKind};
use serde::Serialize;

/// The exit codes. Of several outcomes the one with the highest number is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    Ok = 0,
    Failure = 1,
    Usage = 2,
    NotFound = 3,
    Conflict = 4,
    InFlight = 5,
    Unavailable = 6,
    Unusable = 7,
}

impl Exit {
    pub(crate) const HELP: &'static str = "\
Exit codes:
  0  done
  1  failed
  2  the request is wrong: arguments, names, a body that is too large or cannot be read
  3  no such message, queue or failed message
  4  another message with this id is there already
  5  too late: the message is being sent
  6  the store cannot be reached or is full; the same call may succeed later
  7  the store cannot be used as it is: not set up, damaged, written by a newer version
Of several outcomes the highest number is reported.";
}

/// Why a run ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// With this code and this message: lower case, one line, the next step at its end.
    Said(Exit, String),
    /// Whoever read the output is gone. Nothing is to be said, and nobody is there to hear it.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self::Said(exit, message.into())
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(_, message) => f.write_str(message),
            Self::ReaderGone => f.write_str("the reader of the output is gone"),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::new(code(error.kind()), with_causes(&error))
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Store(error) => error.into(),
            other => Self::usage(other.to_string()),
        }
    }
}

impl From<InvalidStoreUrl> for Failure {
    fn from(error: InvalidStoreUrl) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<InvalidName> for Failure {
    fn from(error: InvalidName) -> Self {
        Self::usage(error.to_string())
    }
}

/// For writing to the standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::new(Exit::Failure, format!("cannot write the output: {error}")),
        }
    }
}

fn code(kind: StoreErrorKind) -> Exit {
    match kind {
        StoreErrorKind::Unavailable | StoreErrorKind::Full | StoreErrorKind::ClaimLost => Exit::Unavailable,
        StoreErrorKind::Conflict => Exit::Conflict,
        StoreErrorKind::TooLarge | StoreErrorKind::Invalid => Exit::Usage,
        StoreErrorKind::NoSuchQueue => Exit::NotFound,
        StoreErrorKind::NotSetUp
        | StoreErrorKind::TooNew
        | StoreErrorKind::Configuration
        | StoreErrorKind::Corrupt => Exit::Unusable,
        _ => Exit::Failure,
    }
}

/// The message of an error and of its causes, each said once.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use postdate::Operation;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let error = |detail: &'static str| {
            StoreError::new(StoreErrorKind::Other, Operation::Store, "x", detail).caused_by("disk on fire")
        };
        assert_eq!(with_causes(&error("failed")), "x: store: failed: disk on fire");
        assert_eq!(with_causes(&error("failed: disk on fire")), "x: store: failed: disk on fire");
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_message() {
        let gone = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(gone, Failure::ReaderGone));
    }

    #[test]
    fn the_help_lists_every_code() {
        for code in Exit::Ok as u8..=Exit::Unusable as u8 {
            assert!(Exit::HELP.contains(&format!("\n  {code}  ")), "{code}");
        }
    }
}
