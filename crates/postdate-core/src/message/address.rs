//! Names of queues and endpoints.

use std::{fmt, sync::Arc};

use super::InvalidName;

/// The queue that a message goes to: 1 to 200 characters, none of them a control character.
///
/// What the text means is the dispatcher's affair: `billing` for a local queue, `billing@machine` for MSMQ.
/// Two addresses are the same only if they are the same to the letter. 200 is the length of the reference's
/// column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Arc<str>);

/// The name of an endpoint, the owner of a set of delayed messages: 1 to 100 characters, none of them a
/// control character.
///
/// Endpoints in one store never see each other's messages; names that differ only in case are different.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointName(Arc<str>);

impl EndpointName {
    /// The queue from which the endpoint's pump takes messages to be delayed: `<endpoint>.timeouts`, as in the
    /// reference.
    pub fn timeouts_queue(&self) -> Address {
        // Neither too long nor with a control character: an endpoint's name is half as long.
        Address(format!("{self}.timeouts").into())
    }
}

macro_rules! name {
    ($type:ident, $what:literal, $max:literal) => {
        impl $type {
            /// The greatest length, in characters.
            pub const MAX_CHARS: usize = $max;

            /// Checks and takes the name.
            ///
            /// # Errors
            /// When it is empty, longer than [`MAX_CHARS`](Self::MAX_CHARS) or contains a control character.
            pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidName> {
                super::check($what, name.as_ref(), Self::MAX_CHARS).map(Self)
            }

            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl std::str::FromStr for $type {
            type Err = InvalidName;

            fn from_str(s: &str) -> Result<Self, InvalidName> {
                Self::new(s)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = InvalidName;

            fn try_from(s: &str) -> Result<Self, InvalidName> {
                Self::new(s)
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;

            fn try_from(s: String) -> Result<Self, InvalidName> {
                Self::new(s)
            }
        }
    };
}

name!(Address, "queue name", 200);
name!(EndpointName, "endpoint name", 100);
