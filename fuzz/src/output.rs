//! The binary has no library: its parsers are taken from its files.

#[path = "../../crates/postdate-cli/src/output/escape.rs"]
pub(crate) mod escape;
#[path = "../../crates/postdate-cli/src/output/time.rs"]
pub(crate) mod time;
