//! `sqlite:postdate.db`, and its options.

use std::{borrow::Cow, path::Path, sync::Arc};

use postdate_core::{Connected, Driver, Operation, StoreError, StoreErrorKind, StoreUrl};

use crate::{Options, Sqlite, scratch::ScratchFolder};

/// Opens a file by URL: `sqlite:postdate.db`, `sqlite:/var/lib/postdate.db`,
/// `sqlite:postdate.db?durability=process-crash`.
pub const DRIVER: Driver = Driver {
    name: "sqlite",
    schemes: &["sqlite"],
    connect: |url| {
        Box::pin(async move {
            let options = options(url)?;
            connect(path(url)?, options).await
        })
    },
    scratch: |url, name| Arc::new(ScratchFolder::new(url, name)),
};

/// Opens a file with the queues in it.
pub(crate) async fn connect(path: impl AsRef<Path>, options: Options) -> Result<Connected, StoreError> {
    let backend = Sqlite::with_options(path, options).await?;
    let queues = backend.queues();
    Ok(Connected { backend: Arc::new(backend), queues: Some(Arc::new(queues)) })
}

/// Others write `sqlite://postdate.db`: that is welcome too. What looks like a password is not: as a part of the path
/// it would be shown in every error.
pub(crate) fn path(url: &StoreUrl) -> Result<&str, StoreError> {
    let Some(path) = url.place().strip_prefix("//") else { return Ok(url.place()) };
    // A password may contain slashes.
    if !path.starts_with('/') && path.contains('@') {
        return Err(wrong(url, "a file has no user, password or host; write sqlite:postdate.db"));
    }
    Ok(path)
}

fn wrong(url: &StoreUrl, detail: impl Into<Cow<'static, str>>) -> StoreError {
    StoreError::new(StoreErrorKind::Configuration, Operation::Connect, url.to_string(), detail)
}

pub(crate) fn options(url: &StoreUrl) -> Result<Options, StoreError> {
    let wrong = |detail: String| wrong(url, detail);
    let mut options = Options::new();
    for (key, value) in url.options() {
        options = match key.as_str() {
            "durability" => options.durability(value.parse().map_err(|error| wrong(format!("{error}")))?),
            _ => return Err(wrong(format!("unknown option {key:?}; the only option is durability"))),
        };
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;

    fn parse(text: &str) -> StoreUrl {
        StoreUrl::parse(text).unwrap()
    }

    #[test]
    fn a_url_names_the_file_and_the_durability() {
        let url = parse("sqlite://some dir/x.db?durability=process-crash");
        assert_eq!(path(&url).unwrap(), "some dir/x.db");
        assert_eq!(options(&url).unwrap().durability, Durability::ProcessCrash);
        assert_eq!(path(&parse("sqlite:///x.db")).unwrap(), "/x.db");
        assert_eq!(path(&parse("sqlite:a@b.db")).unwrap(), "a@b.db");
        assert_eq!(options(&parse("sqlite:x.db")).unwrap().durability, Durability::PowerLoss);
    }

    #[test]
    fn what_looks_like_a_password_is_no_part_of_a_path_and_is_not_shown() {
        for url in ["sqlite://me:s3cret@host/x.db", "sqlite://me:s3/s3cret@host/x.db"] {
            let error = path(&parse(url)).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Configuration);
            assert!(!format!("{error} {error:?}").contains("s3"), "{error}");
        }
    }

    #[test]
    fn an_unknown_option_is_refused_with_the_known_ones() {
        for (url, advice) in [
            ("sqlite:x?mode=ro", "the only option is durability"),
            ("sqlite:x?durability=no", "write power-loss"),
        ] {
            let error = options(&parse(url)).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Configuration);
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
