//! What a verb says: data on standard output, words on standard error.

pub(crate) mod colour;
pub(crate) mod escape;
pub(crate) mod human;
pub(crate) mod json;
pub(crate) mod progress;
pub(crate) mod time;

use std::io::{self, BufWriter, IsTerminal, Write};

use serde::Serialize;

use crate::exit::{Exit, Failure};
use colour::Palette;
use escape::escape;

/// Something a verb found out or did, for machines (its fields) and for people.
pub(crate) trait Report: Serialize {
    /// Writes it for people. Whatever came from elsewhere goes through [`escape`].
    fn human(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Where a verb says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
    words: Words,
}

/// How data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Human,
    Json,
}

/// Whether anything but errors is said on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    Spoken,
    Quiet,
}

impl Output {
    pub(crate) fn new(format: Format, words: Words) -> Self {
        Self { format, words }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Writes a report and flushes, so that what was written is with the reader when this returns.
    pub(crate) fn print(&self, report: &impl Report) -> Result<(), Failure> {
        self.print_all(std::slice::from_ref(report))
    }

    /// Writes an object for machines, whoever listens, and flushes.
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        json_line(&mut out, value)?;
        Ok(out.flush()?)
    }

    /// The same for many.
    pub(crate) fn print_all(&self, reports: &[impl Report]) -> Result<(), Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        for report in reports {
            match self.format {
                Format::Human => report.human(&mut out)?,
                Format::Json => json_line(&mut out, report)?,
            }
        }
        Ok(out.flush()?)
    }

    /// Writes rows as a table for people, or each as an object for machines.
    pub(crate) fn print_rows<R: human::Row>(
        &self,
        table: &mut human::Table,
        rows: &[R],
    ) -> Result<(), Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        match self.format {
            Format::Human => table.write(&mut out, rows)?,
            Format::Json => rows.iter().try_for_each(|row| json_line(&mut out, row))?,
        }
        Ok(out.flush()?)
    }

    /// Says something helpful on standard error, unless told to be quiet.
    pub(crate) fn note(&self, text: &str) {
        if self.words == Words::Spoken {
            say(text);
        }
    }

    /// Says something on standard error that must be heard.
    pub(crate) fn alarm(&self, text: &str) {
        say(text);
    }

    /// Says on standard error what went wrong: one line, or one object where machines listen.
    pub(crate) fn error(&self, exit: Exit, message: &str) {
        match self.format {
            Format::Human => say(&format!("error: {message}")),
            Format::Json => {
                #[derive(Serialize)]
                struct Told<'a> {
                    error: Exit,
                    exit_code: u8,
                    message: &'a str,
                }
                let told = Told { error: exit, exit_code: exit as u8, message };
                // A closed standard error leaves nobody to tell.
                let _ = json_line(&mut io::stderr().lock(), &told);
            }
        }
    }

    /// The colours of what is printed.
    pub(crate) fn palette(&self) -> Palette {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self.format {
            Format::Human if io::stdout().is_terminal() && !unwanted => Palette::Coloured,
            _ => Palette::Plain,
        }
    }

    /// Whether a progress bar would be seen.
    pub(crate) fn shows_progress(&self) -> bool {
        self.words == Words::Spoken && io::stderr().is_terminal()
    }
}

fn json_line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn say(text: &str) {
    // A closed standard error must not end the work.
    let _ = writeln!(io::stderr().lock(), "{}", escape(text));
}
