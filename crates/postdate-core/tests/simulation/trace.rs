//! What happened, as a hash that two runs of one seed must share, and as text for people.

use std::{
    fmt,
    fmt::Write as _,
    hash::{Hash as _, Hasher},
    time::Duration,
};

use postdate_history::Event;

/// The trace of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: Fnv,
    lines: Option<String>,
}

#[derive(Debug)]
struct Fnv(u64);

impl Trace {
    /// `keep` keeps the text as well.
    pub(crate) fn new(keep: bool) -> Self {
        Self { hash: Fnv(0xCBF2_9CE4_8422_2325), lines: keep.then(String::new) }
    }

    pub(crate) fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        let written = writeln!(self.hash, "{} {what}", at.as_micros());
        written.expect("hashing never fails");
        if let Some(lines) = &mut self.lines {
            writeln!(lines, "{:>10.3} {what}", at.as_secs_f64()).expect("writing to a string never fails");
        }
    }

    /// What is judged belongs to what must be the same.
    pub(crate) fn take(&mut self, event: &Event) {
        event.hash(&mut self.hash);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.0
    }

    pub(crate) fn into_text(self) -> String {
        self.lines.unwrap_or_default()
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes());
        Ok(())
    }
}
