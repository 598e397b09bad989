//! Where a store is and how it is used.

use std::{fmt, net::IpAddr, str::FromStr, time::Duration};

use postdate_core::{StoreErrorKind, StoreUrl};
use sqlx::{
    ConnectOptions,
    postgres::{PgConnectOptions, PgSslMode},
};
use url::Url;

use crate::{
    error::{Fault, Result},
    names::Names,
};

/// What the driver understands, spelt as its users know it; see [`PgConnectOptions`].
const OF_THE_DRIVER: [&str; 13] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

/// Options of a store in PostgreSQL.
#[derive(Clone)]
pub struct Options {
    pub(crate) connect: PgConnectOptions,
    /// What errors call the store: without secrets.
    pub(crate) shown: String,
    schema: String,
    prefix: String,
    pub(crate) connections: usize,
    pub(crate) poll: Duration,
    pub(crate) claim_limit: Duration,
}

impl Options {
    /// A store in the schema `postdate` of the database that `connect` leads to. Encryption is as `connect` says:
    /// the driver's own default does without where the server offers none.
    pub fn new(connect: PgConnectOptions) -> Self {
        let shown = format!(
            "postgres://{}:{}/{}",
            connect.get_host(),
            connect.get_port(),
            connect.get_database().unwrap_or_default()
        );
        let connect = connect.disable_statement_logging();
        Self {
            connect,
            shown,
            schema: "postdate".to_owned(),
            prefix: String::new(),
            connections: 8,
            poll: Duration::from_secs(1),
            claim_limit: Duration::from_secs(60),
        }
    }

    /// The schema of the tables, `postdate` unless it is set. Any name of 1 to 63 bytes.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// What the names of all tables begin with; nothing unless it is set. At most 44 bytes.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// At most so many connections for calls, 8 unless it is set. Claims have connections of their own, one each, and
    /// whoever waits for messages shares one more.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.max(1);
        self
    }

    /// How often to look for new messages where the server cannot tell of them (behind a pooler, or in a distributed
    /// database). Every second unless it is set.
    #[must_use]
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every.max(Duration::from_millis(10));
        self
    }

    /// The server ends a claim whose holder says nothing for so long, and others get its messages. A minute unless it is
    /// set, a second at least. Holders say something at half of it.
    #[must_use]
    pub fn claim_limit(mut self, limit: Duration) -> Self {
        self.claim_limit = limit.clamp(Duration::from_secs(1), Duration::from_secs(3_600));
        self
    }

    pub(crate) fn names(&self) -> Result<Names> {
        Names::new(&self.schema, &self.prefix)
    }

    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=..`. What is left out comes from the variables of
    /// PostgreSQL's own programs, such as `PGHOST` and `PGPASSWORD`, and from the password file.
    ///
    /// The server's certificate is verified unless the host is this machine or `sslmode` says otherwise.
    pub(crate) fn from_url(url: &StoreUrl) -> Result<Self> {
        let mut parsed =
            Url::parse(url.secret()).map_err(|error| wrong(format!("{error}; correct the URL")))?;
        let (mut ours, mut has_ssl_mode) = (Vec::new(), std::env::var_os("PGSSLMODE").is_some());
        let mut theirs = Vec::new();
        for (key, value) in parsed.query_pairs().into_owned() {
            match key.as_str() {
                "schema" | "prefix" | "connections" | "poll" | "claim_limit" => ours.push((key, value)),
                known if OF_THE_DRIVER.contains(&known) => {
                    has_ssl_mode |= known == "sslmode";
                    theirs.push((key, value));
                }
                _ => return Err(unknown(&key)),
            }
        }
        parsed.query_pairs_mut().clear().extend_pairs(&theirs);
        if theirs.is_empty() {
            parsed.set_query(None);
        }
        // The driver's words quote the value, which may be a secret in the wrong place.
        let mut connect =
            PgConnectOptions::from_url(&parsed).map_err(|_| not_understood(&parsed, &theirs))?;
        if !theirs.iter().any(|(key, _)| key == "application_name") {
            connect = connect.application_name("postdate");
        }
        if !has_ssl_mode && !is_here(&connect) {
            connect = connect.ssl_mode(PgSslMode::VerifyFull);
        }
        let mut options = Self::new(connect);
        options.shown = url.to_string();
        for (key, value) in ours {
            options = match key.as_str() {
                "schema" => options.schema(value),
                "prefix" => options.prefix(value),
                "connections" => options.connections(number(&key, &value)?),
                "poll" => options.poll(Duration::from_secs(number(&key, &value)?)),
                _ => options.claim_limit(Duration::from_secs(number(&key, &value)?)),
            };
        }
        Ok(options)
    }
}

/// The driver's own would show the password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("server", &self.shown).finish_non_exhaustive()
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| wrong(format!("{key} is a number; correct the URL")))
}

fn not_understood(url: &Url, options: &[(String, String)]) -> Fault {
    let is_wrong = |(key, value): &&(String, String)| {
        let mut url = url.clone();
        url.query_pairs_mut().clear().append_pair(key, value);
        PgConnectOptions::from_url(&url).is_err()
    };
    let part = options.iter().find(is_wrong).map_or("a part of the URL", |(key, _)| key);
    wrong(format!("{part} is not understood; correct the URL"))
}

fn unknown(key: &str) -> Fault {
    let known = ["schema", "prefix", "connections", "poll", "claim_limit"].iter().chain(&OF_THE_DRIVER);
    let known = known.copied().collect::<Vec<_>>().join(", ");
    wrong(format!("unknown option {key:?}; the options are {known}"))
}

fn wrong(detail: String) -> Fault {
    Fault::new(StoreErrorKind::Configuration, detail)
}

/// Whether nobody can come between us and the server.
fn is_here(connect: &PgConnectOptions) -> bool {
    let host = connect.get_host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    connect.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Options> {
        Options::from_url(&StoreUrl::parse(url).unwrap())
    }

    #[test]
    fn the_certificate_of_a_distant_server_is_verified_unless_the_url_says_otherwise() {
        for (url, mode) in [
            ("postgres://db.example/x", "VerifyFull"),
            ("postgres://192.0.2.7/x", "VerifyFull"),
            ("postgres://db.example/x?sslmode=require", "Require"),
            ("postgres://db.example/x?sslmode=disable", "Disable"),
            ("postgres://localhost/x", "Prefer"),
            ("postgres://127.0.0.1:5433/x", "Prefer"),
            ("postgres://[::1]/x", "Prefer"),
            ("postgres://%2Fvar%2Frun%2Fpostgresql/x", "Prefer"),
            ("postgres:///x?host=/var/run/postgresql", "Prefer"),
            ("postgres://localhost/x?host=db.example", "VerifyFull"),
            ("postgres://localhost/x?sslmode=verify-full", "VerifyFull"),
        ] {
            let options = read(url).unwrap();
            assert_eq!(format!("{:?}", options.connect.get_ssl_mode()), mode, "{url}");
        }
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused_without_their_values() {
        let options =
            read("postgresql://me:s3cret@localhost/x?schema=my%20own&prefix=a_&connections=3&poll=5")
                .unwrap();
        assert_eq!(options.names().unwrap(), Names::new("my own", "a_").unwrap());
        assert_eq!((options.connections, options.poll), (3, Duration::from_secs(5)));
        assert_eq!(options.connect.get_application_name(), Some("postdate"));
        for (url, words) in [
            ("postgres://localhost/x?pasword=s3cret", "unknown option \"pasword\""),
            ("postgres://localhost/x?connections=s3cret", "connections is a number"),
            ("postgres://localhost/x?sslmode=s3cret", "sslmode is not understood; correct the URL"),
            ("postgres://localhost:port/x", "correct the URL"),
        ] {
            let fault = read(url).unwrap_err();
            assert_eq!(fault.kind(), StoreErrorKind::Configuration, "{url}");
            let error = fault.into_error(postdate_core::Operation::Connect, "x");
            assert!(error.to_string().contains(words), "{error}");
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
