//! The binary has no library: its parsers are taken from its files.

#[path = "../../crates/postdate-cli/src/cli/header.rs"]
pub(crate) mod header;
