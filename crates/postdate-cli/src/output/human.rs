//! Tables, and the parts of them that several verbs show.

use std::io::{self, Write};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{
    escape::{escape, escape_bytes},
    time::rough,
};

/// How much of a body is shown where it is only looked at.
const PREVIEW_BYTES: usize = 2_000;

/// A line of a table: one object for machines, one cell per column for people.
pub(crate) trait Row: Serialize {
    /// The cells. They need not be escaped.
    fn cells(&self) -> Vec<String>;
}

/// A table that may come in pages: the heading is written once, and columns only ever grow.
#[derive(Debug)]
pub(crate) struct Table {
    headings: &'static [&'static str],
    widths: Vec<usize>,
    begun: bool,
}

impl Table {
    pub(crate) fn new(headings: &'static [&'static str]) -> Self {
        Self { headings, widths: headings.iter().map(|heading| heading.len()).collect(), begun: false }
    }

    pub(crate) fn write<R: Row>(&mut self, out: &mut dyn Write, rows: &[R]) -> io::Result<()> {
        let rows: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.cells().iter().map(|cell| escape(cell).into_owned()).collect())
            .collect();
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if !self.begun && !rows.is_empty() {
            self.begun = true;
            self.line(out, self.headings)?;
        }
        rows.iter().try_for_each(|row| self.line(out, row))
    }

    fn line(&self, out: &mut dyn Write, cells: &[impl AsRef<str>]) -> io::Result<()> {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&self.widths) {
            line.push_str(&format!("{:width$}  ", cell.as_ref()));
        }
        writeln!(out, "{}", line.trim_end())
    }
}

/// A name and its value on a line, the values in one column.
pub(crate) fn field(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{:<14}{}", format!("{name}:"), escape(value))
}

/// Headers, one a line, then the beginning of the body.
pub(crate) fn content(
    out: &mut dyn Write,
    headers: &postdate::EncodedHeaders,
    body: &[u8],
) -> io::Result<()> {
    match headers.decode() {
        Ok(headers) if headers.is_empty() => {}
        Ok(headers) => {
            writeln!(out, "headers:")?;
            for (key, value) in headers.iter() {
                writeln!(out, "  {}: {}", escape(key), escape(value))?;
            }
        }
        Err(_) => field(out, "headers", &preview(headers.as_bytes()))?,
    }
    field(out, "body", &format!("{} bytes", body.len()))?;
    if body.is_empty() { Ok(()) } else { writeln!(out, "  {}", preview(body)) }
}

/// How long `since` has been there.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    rough(now.duration_since(since).max(SignedDuration::ZERO))
}

fn preview(bytes: &[u8]) -> String {
    if bytes.len() <= PREVIEW_BYTES {
        return escape_bytes(bytes);
    }
    // Not through the middle of a character: it would look like damage.
    let cut = (0..4).map(|back| PREVIEW_BYTES - back).find(|at| bytes[*at] & 0xc0 != 0x80);
    let (shown, rest) = bytes.split_at(cut.unwrap_or(PREVIEW_BYTES));
    format!("{} ... {} bytes more; --json shows all", escape_bytes(shown), rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pair(&'static str, &'static str);

    impl Row for Pair {
        fn cells(&self) -> Vec<String> {
            vec![self.0.to_owned(), self.1.to_owned()]
        }
    }

    #[test]
    fn a_table_in_pages_has_one_heading_and_harmless_cells() {
        let (mut table, mut out) = (Table::new(&["ID", "QUEUE"]), Vec::new());
        table.write(&mut out, &[Pair("a", "b")]).unwrap();
        table.write(&mut out, &[Pair("long", "\u{1b}[2J")]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "ID  QUEUE\na   b\nlong  \\u{1b}[2J\n");
    }

    #[test]
    fn an_empty_table_has_no_heading() {
        let (mut table, mut out) = (Table::new(&["ID"]), Vec::new());
        table.write::<Pair>(&mut out, &[]).unwrap();
        assert!(out.is_empty());
    }

    #[test]
    fn a_long_body_is_cut_between_characters() {
        let body = format!("{}€€€", "x".repeat(PREVIEW_BYTES - 1));
        let shown = preview(body.as_bytes());
        assert!(shown.contains("x ... 9 bytes more"), "{shown}");
    }
}
