//! A secret in bodies and header values, and whether it is shown.

use std::{error::Error, fmt::Debug};

use anyhow::{Result, bail, ensure};

/// What must not be seen, in a body and in the value of a header.
pub(crate) const SECRET: &str = "canary-7c9e6679";

/// Fails if the call was accepted, or if its error or a cause of it tells the secret.
pub(crate) fn says_nothing<T, E: Error + 'static>(what: &str, call: Result<T, E>) -> Result<()> {
    let Err(error) = call else { bail!("{what} was accepted") };
    let mut next: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = next {
        hides(what, &error.to_string())?;
        shows_nothing(what, error)?;
        next = error.source();
    }
    Ok(())
}

/// Fails if the secret is in the `Debug` output.
pub(crate) fn shows_nothing(what: &str, value: impl Debug) -> Result<()> {
    hides(what, &format!("{value:?} {value:#?}"))
}

/// Fails if the text tells the secret as it is, as a list of numbers, or in hexadecimal.
fn hides(what: &str, text: &str) -> Result<()> {
    let numbers: Vec<_> = SECRET.bytes().map(|byte| byte.to_string()).collect();
    let hex: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let compact: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    for shape in [SECRET, &numbers.join(","), &hex] {
        ensure!(!compact.to_lowercase().contains(shape), "{what} shows a secret");
    }
    Ok(())
}
