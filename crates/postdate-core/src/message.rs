//! Messages on their way in, while they wait, and on their way out.

mod address;
mod headers;
mod id;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;

pub use address::{Address, EndpointName};
pub use headers::{EncodedHeaders, Headers, HeadersError};
pub use id::MessageId;

/// A name is empty, too long, or contains a control character.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?} {problem}")]
pub struct InvalidName {
    what: &'static str,
    name: String,
    problem: String,
}

fn check(what: &'static str, name: &str, max: usize) -> Result<Arc<str>, InvalidName> {
    let problem = if name.is_empty() {
        "is empty".to_owned()
    } else if name.chars().any(char::is_control) {
        "contains a control character".to_owned()
    } else if name.chars().nth(max).is_some() {
        format!("is longer than {max} characters")
    } else {
        return Ok(name.into());
    };
    Err(InvalidName { what, name: name.chars().take(40).collect(), problem })
}

/// When a message is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At an instant. One in the past means at once.
    At(Timestamp),
    /// So long after the store took the message, by the store's clock.
    After(Duration),
}

impl Due {
    /// As soon as possible.
    pub const NOW: Self = Self::After(Duration::ZERO);

    /// At `instant`.
    pub fn at(instant: Timestamp) -> Self {
        Self::At(instant)
    }

    /// `delay` after the store took the message.
    pub fn after(delay: Duration) -> Self {
        Self::After(delay)
    }

    /// The instant that this means on a clock that shows `now`; none beyond the end of time (the year 9999).
    pub fn resolve(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At(instant) => Some(instant),
            Self::After(delay) => now.checked_add(delay).ok(),
        }
    }
}

/// A message that an application wants to send: body, headers and, if it likes, an id of its own choice.
#[derive(Clone)]
pub struct Message {
    id: Option<MessageId>,
    headers: Headers,
    body: Bytes,
}

impl Message {
    /// A message with this body.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { id: None, headers: Headers::new(), body: body.into() }
    }

    /// Sets a header.
    #[must_use]
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.set(key, value);
        self
    }

    /// Sets the id. Without this the message gets a new one.
    #[must_use]
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Names where this goes and when.
    pub fn to(self, destination: Address, due: Due) -> DelayedMessage {
        DelayedMessage {
            message: OutgoingMessage {
                id: self.id.unwrap_or_else(MessageId::generate),
                destination,
                headers: self.headers.encode(),
                body: self.body,
            },
            due,
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// A message as a dispatcher sends it.
#[derive(Clone, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// What identifies it, now and when it arrives.
    pub id: MessageId,
    /// The queue it goes to.
    pub destination: Address,
    /// Its headers, byte for byte.
    pub headers: EncodedHeaders,
    /// Its body, byte for byte.
    pub body: Bytes,
}

impl OutgoingMessage {
    /// Bytes of headers and body together: what a limit on size is about.
    pub fn size(&self) -> usize {
        self.headers.len() + self.body.len()
    }
}

/// Shows no content: bodies and header values may be secrets.
impl fmt::Debug for OutgoingMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingMessage")
            .field("id", &self.id)
            .field("destination", &self.destination)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// A message to be stored until it is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayedMessage {
    /// What is to be sent.
    pub message: OutgoingMessage,
    /// When.
    pub due: Due,
}

/// A message that is due and was fetched from its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueMessage {
    /// What is to be sent.
    pub message: OutgoingMessage,
    /// When it was due, as stored.
    pub due: Timestamp,
    /// How many attempts to deliver it have failed so far.
    pub failures: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(MessageId::new("x".repeat(250)).is_ok());
        assert!(Address::new("ä".repeat(200)).is_ok(), "characters are counted, not bytes");
        for bad in ["", "a\nb", "\u{0}", &"x".repeat(251)] {
            assert!(MessageId::new(bad).is_err(), "{bad:?}");
            assert!(Address::new(bad).is_err(), "{bad:?}");
        }
        let error = Address::new("x".repeat(201)).unwrap_err().to_string();
        assert!(error.contains("longer than 200 characters"), "{error}");
    }

    #[test]
    fn a_delay_beyond_the_end_of_time_has_no_instant() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert_eq!(Due::After(Duration::MAX).resolve(now), None);
        assert_eq!(Due::NOW.resolve(now), Some(now));
        let ten_years = Duration::from_secs(10 * 365 * 86_400);
        assert_eq!(Due::After(ten_years).resolve(now).unwrap().as_second(), now.as_second() + 315_360_000);
    }

    #[test]
    fn debug_output_shows_no_content() {
        let message = Message::new("the-secret-body").header("token", "the-secret-value");
        let sent = message.clone().to(Address::new("q").unwrap(), Due::NOW);
        for text in [format!("{message:?}"), format!("{sent:?}")] {
            assert!(!text.contains("the-secret"), "{text}");
        }
    }
}
