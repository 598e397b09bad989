//! From what went wrong inside to the errors that callers see.

use std::{borrow::Cow, error::Error, io, sync::Arc};

use postdate_core::{Operation, StoreError, StoreErrorKind};
use sqlx::postgres::PgDatabaseError;

/// What went wrong, before it is known to which operation that belongs.
///
/// It can be cloned because one failed commit fails everything that shared the transaction.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    kind: StoreErrorKind,
    detail: Cow<'static, str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
    is_collision: bool,
}

/// Another transaction was in the way, of which one had to go.
const COLLISIONS: [&str; 3] = ["40001", "40P01", "55P03"];

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

impl Fault {
    pub(crate) fn new(kind: StoreErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), source: None, is_collision: false }
    }

    pub(crate) fn no_such_queue(queue: impl std::fmt::Display) -> Self {
        Self::new(StoreErrorKind::NoSuchQueue, missing_queue(queue))
    }

    pub(crate) fn not_set_up() -> Self {
        let detail = "the schema has not been set up; run `postdate setup` or call `set_up`";
        Self::new(StoreErrorKind::NotSetUp, detail)
    }

    /// The runtime was shut down while a task of ours was at work.
    pub(crate) fn interrupted() -> Self {
        let detail = "the runtime was shut down meanwhile; look whether it happened before you try again";
        Self::new(StoreErrorKind::Unavailable, detail)
    }

    /// A claim whose connection broke: what it held belongs to others now.
    pub(crate) fn claim_lost(self) -> Self {
        let detail = format!("the transaction that held the messages is gone ({}); fetch again", self.detail);
        Self { kind: StoreErrorKind::ClaimLost, detail: detail.into(), ..self }
    }

    /// Whether this is what somebody asked for, and nothing is wrong with the connection.
    pub(crate) fn is_answer(&self) -> bool {
        self.kind == StoreErrorKind::Conflict
    }

    /// Whether the same may succeed at once: nothing of it was done, because another transaction was in the way.
    pub(crate) fn is_collision(&self) -> bool {
        self.is_collision
    }

    pub(crate) fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    pub(crate) fn into_error(self, operation: Operation, store: &str) -> StoreError {
        let error = StoreError::new(self.kind, operation, store.to_owned(), self.detail);
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

/// What to say where a queue is missing.
pub(crate) fn missing_queue(queue: impl std::fmt::Display) -> String {
    format!("queue `{queue}` does not exist; create it with `postdate queue create {queue}`")
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let (kind, detail) = explain(&error);
        // What the driver itself says is in the detail.
        let Some(said) = error.as_database_error() else { return Self::new(kind, detail) };
        let code = said.code().unwrap_or_default();
        let told = Told(format!("{} ({code})", one_line(said.message())));
        let is_collision = COLLISIONS.contains(&&*code);
        Self { kind, detail, source: Some(Arc::new(told)), is_collision }
    }
}

/// What the server said, without the details, which can contain values of rows.
#[derive(Debug)]
struct Told(String);

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Told {}

fn explain(error: &sqlx::Error) -> (StoreErrorKind, Cow<'static, str>) {
    use StoreErrorKind as Kind;

    match error {
        sqlx::Error::Database(error) => explain_state(
            error.try_downcast_ref::<PgDatabaseError>().map_or("", PgDatabaseError::code),
            error.message(),
        ),
        // What is wrong with a certificate comes as invalid data.
        sqlx::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            (Kind::Configuration, not_accepted(error))
        }
        sqlx::Error::Io(error) => (Kind::Unavailable, unreachable(error)),
        sqlx::Error::Tls(error) => {
            let said = one_line(&error.to_string());
            let advice = "let the server offer encryption, or choose another sslmode if you can do without";
            (Kind::Configuration, format!("the connection cannot be encrypted: {said}; {advice}").into())
        }
        sqlx::Error::Configuration(error) => {
            (Kind::Configuration, format!("{}; correct the URL", one_line(&error.to_string())).into())
        }
        error => (Kind::Unavailable, format!("{}; try again", one_line(&error.to_string())).into()),
    }
}

fn not_accepted(error: &(dyn Error + 'static)) -> Cow<'static, str> {
    let said = one_line(&error.to_string());
    let advice = "give the authority with sslrootcert=FILE, or choose another sslmode if you can do without";
    format!("the server's certificate was not accepted: {said}; {advice}").into()
}

fn unreachable(error: &io::Error) -> Cow<'static, str> {
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused => "is the server running, and is the port right?",
        io::ErrorKind::NotFound => "is the server running, and is the path of the socket right?",
        _ => "try again",
    };
    format!("the server cannot be reached: {}; {advice}", one_line(&error.to_string())).into()
}

/// What a code of the SQL standard or of PostgreSQL (its manual, appendix A) means here.
fn explain_state(code: &str, message: &str) -> (StoreErrorKind, Cow<'static, str>) {
    use StoreErrorKind as Kind;

    let with = |advice: &str| Cow::from(format!("{}; {advice}", one_line(message)));
    match code {
        "42P01" | "3F000" => {
            (Kind::NotSetUp, "the schema has not been set up; run `postdate setup` or call `set_up`".into())
        }
        "42501" => (
            Kind::Configuration,
            with("grant this user the right, or let somebody run what `postdate setup --print` shows"),
        ),
        "28000" | "28P01" => {
            (Kind::Configuration, "the server refuses this user or password; correct the URL".into())
        }
        "3D000" => (Kind::Configuration, "there is no such database; create it, or correct the URL".into()),
        "25006" => (
            Kind::Unavailable,
            "the server only reads: it is a replica, or was told so; connect to the primary".into(),
        ),
        "53100" => {
            (Kind::Full, "the server's disk is full; free some space, nothing that was stored is lost".into())
        }
        "53300" => (Kind::Unavailable, with("raise max_connections, or use fewer connections")),
        "54000" => (Kind::TooLarge, with("store the content elsewhere")),
        "25P03" | "57014" => {
            (Kind::Unavailable, "the server ended a transaction that took too long; try again".into())
        }
        "25P02" => (
            Kind::Unavailable,
            "a statement of this transaction failed, and all of it is undone; try again".into(),
        ),
        collision if COLLISIONS.contains(&collision) => {
            (Kind::Unavailable, "another transaction was in the way; try again".into())
        }
        "XX001" | "XX002" => {
            (Kind::Corrupt, with("look at the server's disk and its log, and restore a backup"))
        }
        // Connection exceptions, lack of resources, an operator who stops the server, an error of the system.
        code if ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
            (Kind::Unavailable, with("try again"))
        }
        _ => (Kind::Other, one_line(message).into()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_kind_and_says_what_to_do() {
        for (code, kind, advice) in [
            ("42P01", StoreErrorKind::NotSetUp, "postdate setup"),
            ("42501", StoreErrorKind::Configuration, "setup --print"),
            ("28P01", StoreErrorKind::Configuration, "correct the URL"),
            ("3D000", StoreErrorKind::Configuration, "create it"),
            ("25006", StoreErrorKind::Unavailable, "connect to the primary"),
            ("53100", StoreErrorKind::Full, "free some space"),
            ("53300", StoreErrorKind::Unavailable, "max_connections"),
            ("57P01", StoreErrorKind::Unavailable, "try again"),
            ("57P03", StoreErrorKind::Unavailable, "try again"),
            ("40001", StoreErrorKind::Unavailable, "try again"),
            ("XX001", StoreErrorKind::Corrupt, "restore a backup"),
        ] {
            let (is, detail) = explain_state(code, "the server's\nwords");
            assert_eq!(is, kind, "{code}");
            assert!(detail.contains(advice) && !detail.contains('\n'), "{code}: {detail}");
        }
    }

    #[test]
    fn an_error_names_store_and_operation() {
        let refused = sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into());
        let error = Fault::from(refused).into_error(Operation::Store, "postgres://host/db");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(
            error.to_string().starts_with("postgres://host/db: store: the server cannot be reached"),
            "{error}"
        );
        assert!(error.is_transient());
    }
}
