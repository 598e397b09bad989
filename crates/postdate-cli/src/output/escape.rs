//! Making foreign text harmless to a terminal.
//!
//! Bodies, headers, ids and names come from anybody. Printed as they are, they could move the cursor, set the
//! title, paste into the shell or, with bidirectional controls, show something else than what is there.

use std::{borrow::Cow, fmt::Write};

/// `text` on one line, with every character written out that would act instead of showing.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    push(&mut escaped, text);
    Cow::Owned(escaped)
}

/// The same for bytes that may be no text: what is not UTF-8 appears as `\xNN`.
pub(crate) fn escape_bytes(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        push(&mut escaped, chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(escaped, "\\x{byte:02x}");
        }
    }
    escaped
}

fn push(escaped: &mut String, text: &str) {
    for c in text.chars() {
        if acts(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
}

fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' // direction
            | '\u{2028}' | '\u{2029}' // line and paragraph separators
            | '\u{fff9}'..='\u{fffb}' // annotations
            | '\u{e0000}'..='\u{e007f}') // invisible tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_text_stays_as_it_is() {
        for text in ["", "billing", "{\"a\":\"x\\\"y\"}", "Grüße, 世界 👩‍👧"] {
            assert!(matches!(escape(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
    }

    #[test]
    fn what_acts_on_a_terminal_is_written_out() {
        for (text, shown) in [
            ("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("two\nlines\r\tand a tab", "two\\nlines\\r\\tand a tab"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{7f}", "\\u{7f}"),
            ("\u{0}", "\\u{0}"),
            ("user\u{202e}nimda", "user\\u{202e}nimda"),
            ("\u{2066}\u{2069}\u{200f}\u{2028}", "\\u{2066}\\u{2069}\\u{200f}\\u{2028}"),
        ] {
            assert_eq!(escape(text), shown);
            assert_eq!(escape_bytes(text.as_bytes()), shown);
        }
    }

    #[test]
    fn no_control_character_of_any_kind_gets_through() {
        let everything: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        let direction = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(!escape(&everything).chars().any(|c| c.is_control() || direction(c)));
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_bytes() {
        assert_eq!(escape_bytes(b"a\xff\xfe\x00b\xc3"), "a\\xff\\xfe\\u{0}b\\xc3");
    }
}
