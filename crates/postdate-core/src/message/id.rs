//! The identity of a message.

use std::{fmt, sync::Arc};

use super::InvalidName;

/// What identifies a message within its endpoint: 1 to 250 characters, none of them a control character.
///
/// The caller may choose it (an order number, say) and cancel or reschedule by it later, and a receiver can
/// use it to recognise a message that was delivered twice. 250 is the length of the reference's column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Arc<str>);

impl MessageId {
    /// The greatest length, in characters.
    pub const MAX_CHARS: usize = 250;

    /// Checks and takes `id`.
    ///
    /// # Errors
    /// When it is empty, longer than [`MAX_CHARS`](Self::MAX_CHARS) or contains a control character.
    pub fn new(id: impl AsRef<str>) -> Result<Self, InvalidName> {
        super::check("message id", id.as_ref(), Self::MAX_CHARS).map(Self)
    }

    /// A new identity that nobody else has: a UUID of version 7, so that ids made later sort later.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string().into())
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::str::FromStr for MessageId {
    type Err = InvalidName;

    fn from_str(s: &str) -> Result<Self, InvalidName> {
        Self::new(s)
    }
}
