//! From a URL to a store.

use postdate_core::{Connected, Driver, InvalidStoreUrl, StoreError, StoreUrl};

use crate::memory;

/// The backends that this build contains.
pub const DRIVERS: &[Driver] = &[
    #[cfg(feature = "sqlite")]
    postdate_sqlite::DRIVER,
    #[cfg(feature = "postgres")]
    postdate_postgres::DRIVER,
    memory::DRIVER,
];

/// Every backend there is or will be, built in or not, so that a URL for an absent one gets a useful answer.
const BACKENDS: &[Known] = &[
    Known { name: "SQLite", schemes: &["sqlite"], feature: Some("sqlite") },
    Known { name: "PostgreSQL", schemes: &["postgres", "postgresql"], feature: Some("postgres") },
    Known { name: "SQL Server", schemes: &["mssql", "sqlserver"], feature: None },
    Known { name: "Azure Blob Storage", schemes: &["azblob"], feature: None },
];

struct Known {
    name: &'static str,
    schemes: &'static [&'static str],
    /// The cargo feature that adds it; none while the backend is not released.
    feature: Option<&'static str>,
}

/// There is no store behind a URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is not a URL.
    #[error(transparent)]
    InvalidUrl(#[from] InvalidStoreUrl),
    /// No backend of any build answers to the scheme.
    #[error("no store is called {scheme}:; this build knows {}", schemes(.known))]
    UnknownScheme {
        /// The scheme of the URL.
        scheme: String,
        /// Those that would have worked.
        known: Vec<&'static str>,
    },
    /// The scheme is that of a backend which this build does not contain.
    #[error("this build does not contain the {backend} backend ({scheme}:): {}; it knows {}", remedy(*.feature), schemes(.known))]
    NotBuilt {
        /// The scheme of the URL.
        scheme: String,
        /// What the backend is called.
        backend: &'static str,
        /// The cargo feature that adds it; `None` while no release contains it.
        feature: Option<&'static str>,
        /// The schemes that would have worked.
        known: Vec<&'static str>,
    },
    /// The backend could not connect.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Connects to the store behind a URL such as `sqlite:postdate.db`, with the backends of this build.
///
/// # Errors
/// When the text is no URL, no backend of this build answers to it, or the backend cannot connect. Secrets in
/// the URL are in none of the messages.
pub async fn connect(url: &str) -> Result<Connected, ConnectError> {
    connect_with(DRIVERS, url).await
}

/// The same with a choice of backends, those from elsewhere included.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(drivers: &[Driver], url: &str) -> Result<Connected, ConnectError> {
    let url = StoreUrl::parse(url)?;
    Ok((find(drivers, &url)?.connect)(&url).await?)
}

/// The backend of this build that answers to a URL.
///
/// # Errors
/// When there is none.
pub fn driver(url: &StoreUrl) -> Result<&'static Driver, ConnectError> {
    find(DRIVERS, url)
}

fn find<'a>(drivers: &'a [Driver], url: &StoreUrl) -> Result<&'a Driver, ConnectError> {
    let found = drivers.iter().find(|driver| driver.schemes.contains(&url.scheme()));
    found.ok_or_else(|| nobody(drivers, url.scheme()))
}

fn nobody(drivers: &[Driver], scheme: &str) -> ConnectError {
    let known = drivers.iter().flat_map(|driver| driver.schemes).copied().collect();
    let scheme = scheme.to_owned();
    match BACKENDS.iter().find(|backend| backend.schemes.contains(&scheme.as_str())) {
        Some(backend) => {
            ConnectError::NotBuilt { scheme, backend: backend.name, feature: backend.feature, known }
        }
        None => ConnectError::UnknownScheme { scheme, known },
    }
}

fn remedy(feature: Option<&str>) -> String {
    match feature {
        Some(feature) => format!("build with the cargo feature `{feature}`"),
        None => "no release has it yet".to_owned(),
    }
}

fn schemes(known: &[&str]) -> String {
    known.iter().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_answered_with_the_known_ones() {
        let error = nobody(DRIVERS, "redis").to_string();
        assert!(error.contains("redis:") && error.contains("memory:"), "{error}");
    }

    #[test]
    fn an_absent_backend_is_named_with_its_remedy() {
        for (scheme, feature) in [("sqlite", "sqlite"), ("postgresql", "postgres")] {
            let error = nobody(&[], scheme).to_string();
            assert!(error.contains(&format!("cargo feature `{feature}`")), "{error}");
        }
        for scheme in ["mssql", "sqlserver", "azblob"] {
            let error = nobody(DRIVERS, scheme).to_string();
            assert!(error.contains("this build does not contain") && error.contains(scheme), "{error}");
        }
    }

    #[test]
    fn every_built_backend_is_in_the_table_under_the_name_of_its_feature() {
        for driver in DRIVERS.iter().filter(|driver| driver.name != memory::DRIVER.name) {
            let known = BACKENDS.iter().find(|backend| backend.schemes == driver.schemes);
            assert_eq!(known.and_then(|backend| backend.feature), Some(driver.name), "{driver:?}");
        }
    }

    #[tokio::test]
    async fn a_memory_store_is_always_there_with_its_queues() {
        let connected = connect("memory:test").await.unwrap();
        assert!(!connected.backend.capabilities().durable);
        assert!(connected.queues.is_some());
    }

    #[tokio::test]
    async fn no_secret_of_a_url_is_in_an_error() {
        for url in ["postgres://me:s3cret@127.0.0.1:1/db", "nosuch://me:s3cret@host", "me-and-my-s3cret"] {
            let error = connect(url).await.unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        }
    }
}
