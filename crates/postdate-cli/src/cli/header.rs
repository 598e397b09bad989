//! Headers as they are written in an argument.

/// Reads `KEY=VALUE`.
pub(crate) fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !key.chars().any(char::is_control) => {
            Ok((key.to_owned(), value.to_owned()))
        }
        _ => Err("not a header; write it like tenant=acme".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_split_at_the_first_sign() {
        assert_eq!(parse_header("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        for bad in ["", "a", "=b", "a\nb=c"] {
            assert!(parse_header(bad).unwrap_err().contains("tenant=acme"), "{bad:?}");
        }
    }
}
