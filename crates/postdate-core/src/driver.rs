//! How a backend is chosen by a URL.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::BoxFuture;

use crate::{Backend, Queues, StoreError};

/// What a backend crate exports so that its stores can be named by URL.
#[derive(Clone, Copy)]
pub struct Driver {
    /// The backend's name, also that of its cargo feature.
    pub name: &'static str,
    /// The URL schemes it answers to.
    pub schemes: &'static [&'static str],
    /// Connects.
    pub connect: for<'a> fn(&'a StoreUrl) -> BoxFuture<'a, Result<Connected, StoreError>>,
    /// The scratch place of this name beside the store of a URL. Does nothing yet: what is wrong with either
    /// shows when it is connected to. The name is new, of at most 36 lower-case letters and digits, the first of
    /// them a letter: fit for a folder, a schema or a container.
    pub scratch: fn(&StoreUrl, &str) -> Arc<dyn ScratchPlace>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("name", &self.name).field("schemes", &self.schemes).finish()
    }
}

/// What is behind a URL.
#[derive(Clone, Debug)]
pub struct Connected {
    /// The store.
    pub backend: Arc<dyn Backend>,
    /// Queues in the same place, where there can be any.
    pub queues: Option<Arc<dyn Queues>>,
}

/// An empty place of one's own beside a store, for trials: the same disk, server and options, none of its
/// messages. For a file that is a folder beside it, for a database a schema, for an account a container.
#[async_trait]
pub trait ScratchPlace: fmt::Debug + Send + Sync + 'static {
    /// Makes the place if it is not there, and opens a handle on it, as another process would.
    ///
    /// Contract:
    /// - nothing outside of the place is changed; the store that it is beside need not be there, and is not made
    /// - all handles come to the same messages
    async fn connect(&self) -> Result<Connected, StoreError>;

    /// Removes the place with all that is in it, also what a call that was dropped half-way has made; nothing to
    /// remove is no error.
    ///
    /// Handles may be open still, which do not have to work any more. Called in another runtime than
    /// [`connect`](Self::connect): this needs a connection of its own.
    async fn remove(&self) -> Result<(), StoreError>;
}

/// The URL of a store. It may contain secrets: `Display` and `Debug` show it without them.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    scheme: usize,
    query: Option<usize>,
}

/// A text is not the URL of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a store URL; write it like sqlite:postdate.db")]
pub struct InvalidStoreUrl(String);

impl StoreUrl {
    /// Takes a URL apart: a scheme, a place that the backend understands, and options after `?`.
    ///
    /// # Errors
    /// When there is no scheme or no place.
    pub fn parse(text: &str) -> Result<Self, InvalidStoreUrl> {
        let scheme = text.find(':').unwrap_or(0);
        let valid = text.as_bytes()[..scheme].iter().all(u8::is_ascii_alphanumeric);
        if scheme < 2 || !valid || text.len() == scheme + 1 {
            // What is no URL may still be a secret, pasted by mistake: show its beginning only.
            return Err(InvalidStoreUrl(format!("{:?}", text.chars().take(8).collect::<String>())));
        }
        Ok(Self { text: text.to_owned(), scheme, query: text.find('?') })
    }

    /// `sqlite`, say.
    pub fn scheme(&self) -> &str {
        &self.text[..self.scheme]
    }

    /// What stands between scheme and options, as it was written.
    pub fn place(&self) -> &str {
        &self.text[self.scheme + 1..self.query.unwrap_or(self.text.len())]
    }

    /// The options, percent-decoded.
    pub fn options(&self) -> impl Iterator<Item = (String, String)> {
        let query = self.query.map_or("", |at| &self.text[at + 1..]);
        url::form_urlencoded::parse(query.as_bytes()).into_owned()
    }

    /// What stands from here to the options, unless this is behind their beginning.
    fn place_from(&self, at: usize) -> Option<&str> {
        self.text.get(at..self.query.unwrap_or(self.text.len()))
    }

    /// The whole URL with its secrets: never print this.
    pub fn secret(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for StoreUrl {
    /// People write passwords as they are, with letters in them that begin a path or options by the rules. So
    /// nothing before the last `@` of a URL with a host is shown, and nothing behind it either where it may
    /// stand in the value of an option.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place();
        let at = self.text.rfind('@').filter(|_| place.starts_with("//"));
        match at.map(|at| self.place_from(at)) {
            Some(None) => return write!(f, "{}://***", self.scheme()),
            Some(Some(host)) => write!(f, "{}://***{host}", self.scheme())?,
            None => write!(f, "{}:{place}", self.scheme())?,
        }
        for (i, (key, _)) in self.options().enumerate() {
            f.write_str(if i == 0 { "?" } else { "&" })?;
            url::form_urlencoded::byte_serialize(key.as_bytes()).try_for_each(|part| f.write_str(part))?;
            f.write_str("=***")?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

impl std::str::FromStr for StoreUrl {
    type Err = InvalidStoreUrl;

    fn from_str(s: &str) -> Result<Self, InvalidStoreUrl> {
        Self::parse(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let url = StoreUrl::parse("sqlite:some dir/a.db?durability=process%20crash").unwrap();
        assert_eq!((url.scheme(), url.place()), ("sqlite", "some dir/a.db"));
        assert_eq!(url.options().collect::<Vec<_>>(), [("durability".into(), "process crash".into())]);
    }

    #[test]
    fn secrets_are_not_shown() {
        for (text, shown) in [
            ("postgres://me:s3cret@host:5432/db?password=s3cret", "postgres://***@host:5432/db?password=***"),
            ("postgres://me:s3c@ret@host", "postgres://***@host"),
            ("postgres://me:s3c/ret@host/db", "postgres://***@host/db"),
            ("postgres://me:s3c?r=et@host/db?x=1", "postgres://***"),
            ("postgres://me@host/db?password=s3c@ret", "postgres://***"),
            ("postgres://host/db?a%0a%1b=s3cret", "postgres://host/db?a%0A%1B=***"),
            ("azblob://account/container?sig=s3cret&x=1", "azblob://account/container?sig=***&x=***"),
            ("sqlite:/a/b@c.db", "sqlite:/a/b@c.db"),
        ] {
            let url = StoreUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("s3c"), "{url:?}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_an_example() {
        for text in ["", "postdate.db", "sqlite:", ":x", "C:\\x"] {
            let error = StoreUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains("sqlite:postdate.db"), "{error}");
        }
    }
}
