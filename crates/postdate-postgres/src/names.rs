//! Names of schemas and tables, and the one function that quotes them.

use std::fmt;

use postdate_core::StoreErrorKind;

use crate::error::{Fault, Result};

/// PostgreSQL cuts longer names off in silence, so that two would become one.
const MAX_BYTES: usize = 63;

/// The longest name that is made of the prefix.
const LONGEST_TABLE: &str = "queue_message_order";

/// What all tables of one place are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    schema: String,
    prefix: String,
}

impl Names {
    pub(crate) fn new(schema: &str, prefix: &str) -> Result<Self> {
        check("schema", schema)?;
        if !prefix.is_empty() {
            check("table prefix", prefix)?;
        }
        if prefix.len() + LONGEST_TABLE.len() > MAX_BYTES {
            let most = MAX_BYTES - LONGEST_TABLE.len();
            return Err(wrong(format!("the table prefix is longer than {most} bytes; choose a shorter one")));
        }
        Ok(Self { schema: schema.to_owned(), prefix: prefix.to_owned() })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// A statement with the names filled in: `{schema}` stands for the schema, `{-name}` for the bare name of an index, every other
    /// `{name}` for the table or function of that name.
    pub(crate) fn fill(&self, template: &str) -> String {
        let mut filled = String::with_capacity(template.len() + 64);
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            let (name, after) = after.split_once('}').unwrap_or((after, ""));
            filled.push_str(&self.of(name));
            rest = after;
        }
        filled + rest
    }

    /// The channel on which handles of this place tell each other of what they committed.
    pub(crate) fn channel(&self) -> String {
        // A channel is a name, too, and a schema's may be as long as a name can be.
        let place = format!("{}/{}", self.schema, self.prefix);
        format!("postdate_{:016x}", fnv(place.as_bytes()))
    }

    /// Quotes for the body of a function, which no name in it can end.
    pub(crate) fn dollar_quotes(&self) -> String {
        let mut quotes = "$body$".to_owned();
        while self.schema.contains(&quotes) || self.prefix.contains(&quotes) {
            quotes.insert_str(1, "a_");
        }
        quotes
    }

    /// What those lock who set up this place, one at a time.
    pub(crate) fn lock(&self) -> i64 {
        fnv(format!("postdate set-up of {}/{}", self.schema, self.prefix).as_bytes()).cast_signed()
    }

    fn of(&self, name: &str) -> String {
        match name {
            "schema" => quote(&self.schema),
            // An index is made beside its table and cannot be told another schema.
            _ if name.starts_with('-') => quote(&format!("{}{}", self.prefix, &name[1..])),
            _ => format!("{}.{}", quote(&self.schema), quote(&format!("{}{name}", self.prefix))),
        }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.of("*"))
    }
}

/// A name as a statement takes it, whatever is in it.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a statement takes it, whatever is in it and however the session reads backslashes.
pub(crate) fn literal(text: &str) -> String {
    let escaped = text.replace('\'', "''");
    if escaped.contains('\\') {
        format!("E'{}'", escaped.replace('\\', "\\\\"))
    } else {
        format!("'{escaped}'")
    }
}

fn check(what: &str, name: &str) -> Result<()> {
    let problem = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_BYTES {
        "is longer than 63 bytes"
    } else if name.contains('\0') {
        "contains a zero byte"
    } else if name.starts_with("pg_") && what == "schema" {
        "begins with pg_, which PostgreSQL keeps for itself"
    } else {
        return Ok(());
    };
    Err(wrong(format!("the {what} {problem}; choose another one")))
}

fn wrong(detail: String) -> Fault {
    Fault::new(StoreErrorKind::Configuration, detail)
}

/// FNV-1a: the same in every build and on every machine, which the standard hasher does not promise.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_never_cut_off() {
        let hostile = r#"my "schema"; DROP TABLE x"#;
        let names = Names::new(hostile, "a.").unwrap();
        assert_eq!(
            names.fill("SELECT 1 FROM {message}, {schema} -- {-order}"),
            r#"SELECT 1 FROM "my ""schema""; DROP TABLE x"."a.message", "my ""schema""; DROP TABLE x" -- "a.order""#
        );
        for bad in ["", "pg_x", "a\0b", &"x".repeat(64), &"ä".repeat(32)] {
            let fault = Names::new(bad, "").unwrap_err();
            assert_eq!(fault.kind(), StoreErrorKind::Configuration, "{bad:?}");
        }
        assert!(Names::new(&"x".repeat(63), "").is_ok());
        assert!(Names::new("x", &"x".repeat(63 - LONGEST_TABLE.len())).is_ok());
        assert!(Names::new("x", &"x".repeat(64 - LONGEST_TABLE.len())).is_err());
    }

    #[test]
    fn places_have_channels_and_locks_of_their_own() {
        let [one, other] = [Names::new("a", "b").unwrap(), Names::new("a", "c").unwrap()];
        assert_ne!(one.channel(), other.channel());
        assert_ne!(one.lock(), other.lock());
        assert!(one.channel().len() <= MAX_BYTES);
    }

    #[test]
    fn no_name_ends_the_body_of_a_function() {
        for (schema, prefix) in [("x", ""), ("$body$", ""), ("$body$ $a_body$", "$a_a_body$")] {
            let names = Names::new(schema, prefix).unwrap();
            assert!(!names.fill("{schema}{message}").contains(&names.dollar_quotes()));
        }
    }

    #[test]
    fn a_literal_is_a_text_and_nothing_else() {
        assert_eq!(literal("o'clock"), "'o''clock'");
        assert_eq!(literal(r"a\'b"), r"E'a\\''b'");
    }
}
