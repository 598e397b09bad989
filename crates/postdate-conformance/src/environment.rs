//! What the environment asks of a run.

use std::{
    env::{self, VarError},
    error::Error,
    fmt,
    num::{NonZeroU64, NonZeroUsize},
    str::FromStr,
};

/// From which seed random content and histories are made; the next history is made from the next number.
pub(crate) const SEED: Variable<u64> = Variable::new("POSTDATE_SEED", "a whole number");
/// How many histories are tried.
pub(crate) const HISTORIES: Variable<NonZeroU64> =
    Variable::new("POSTDATE_HISTORIES", "a whole number of at least 1");
/// How many messages the large backlog has.
pub(crate) const LARGE: Variable<NonZeroUsize> =
    Variable::new("POSTDATE_LARGE", "a whole number of at least 1");

/// A variable and what it has to be where it is set.
pub(crate) struct Variable<T> {
    pub(crate) name: &'static str,
    wanted: &'static str,
    read: fn(&str) -> Option<T>,
}

/// A variable in the environment that the suite reads has a value that means nothing.
#[derive(Clone, Debug)]
pub struct InvalidEnvironment {
    name: &'static str,
    value: String,
    wanted: &'static str,
}

/// Whether the variables that the suite reads can be understood. Ask before judging: a check that comes upon one that
/// cannot fails, and the store is not to blame.
///
/// # Errors
/// When `POSTDATE_SEED`, `POSTDATE_HISTORIES` or `POSTDATE_LARGE` is no number, or one of the latter is 0.
pub fn check_environment() -> Result<(), InvalidEnvironment> {
    SEED.get().and(HISTORIES.get().map(drop)).and(LARGE.get().map(drop))
}

impl<T: FromStr> Variable<T> {
    const fn new(name: &'static str, wanted: &'static str) -> Self {
        Self { name, wanted, read: |text| text.parse().ok() }
    }

    /// Its value, if it is set.
    pub(crate) fn get(&self) -> Result<Option<T>, InvalidEnvironment> {
        let value = match env::var(self.name) {
            Ok(value) => value,
            Err(VarError::NotPresent) => return Ok(None),
            Err(VarError::NotUnicode(value)) => value.to_string_lossy().into_owned(),
        };
        self.understand(value).map(Some)
    }

    fn understand(&self, value: String) -> Result<T, InvalidEnvironment> {
        (self.read)(&value).ok_or(InvalidEnvironment { name: self.name, value, wanted: self.wanted })
    }
}

impl fmt::Display for InvalidEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, wanted } = self;
        write!(f, "{name} is {value:?}; make it {wanted}, or do not set it")
    }
}

impl Error for InvalidEnvironment {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_tries_nothing_or_is_no_number_is_refused() {
        assert_eq!(SEED.understand("0".into()).unwrap(), 0);
        assert_eq!(HISTORIES.understand("1".into()).unwrap().get(), 1);
        for value in ["0", "", "-1", "many"] {
            let error = HISTORIES.understand(value.into()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "POSTDATE_HISTORIES is {value:?}; make it a whole number of at least 1, or do not set it"
                )
            );
            assert!(LARGE.understand(value.into()).is_err(), "{value}");
        }
        assert!(SEED.understand("x".into()).is_err());
    }
}
