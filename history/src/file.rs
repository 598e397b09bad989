//! Histories in files: a JSON object a line.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use jiff::{Timestamp, TimestampRound, Unit};

use crate::{Event, What};

/// Writes what happens in one process to a file of its own. What was written survives the process.
#[derive(Debug)]
pub struct Recorder {
    file: Mutex<File>,
    process: Option<u32>,
}

impl Recorder {
    /// Begins or goes on with a file, for a process or for what happens outside of all.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, process: Option<u32>) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file: Mutex::new(file), process })
    }

    /// Whose history it is.
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// Writes down what happens now.
    ///
    /// # Panics
    /// When it cannot be written: a history with holes would be judged wrongly.
    pub fn record(&self, what: What) {
        self.record_all([what]);
    }

    /// Writes down what happens now, in this order.
    ///
    /// # Panics
    /// As [`record`](Self::record).
    pub fn record_all(&self, what: impl IntoIterator<Item = What>) {
        let written = self.write(what.into_iter());
        written.unwrap_or_else(|error| panic!("the history cannot be written: {error}"));
    }

    fn write(&self, what: impl Iterator<Item = What>) -> io::Result<()> {
        // Under the lock, so that the order of the file is that of the times.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = Vec::new();
        for what in what {
            serde_json::to_writer(&mut lines, &Event { at: now(), process: self.process, what })?;
            lines.push(b'\n');
        }
        // At once: a process that is killed leaves whole lines behind, but for the last.
        file.write_all(&lines)
    }
}

/// The time as stores keep it: in microseconds.
fn now() -> Timestamp {
    let now = Timestamp::now();
    now.round(TimestampRound::new().smallest(Unit::Microsecond).mode(jiff::RoundMode::Floor)).unwrap_or(now)
}

/// The history in a file. A last line that was cut off is left out.
///
/// # Errors
/// When the file cannot be read or a line is no event.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .with_context(|| format!("{}:{}: this is no event", path.display(), number + 1))
    };
    whole.lines().enumerate().map(parse).collect()
}

/// Writes a history to a new file.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, history: &[Event]) -> Result<()> {
    let mut file = io::BufWriter::new(File::create(path)?);
    for event in history {
        serde_json::to_writer(&mut file, event)?;
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}

/// Makes one history of several, each in order, by time.
///
/// A process died, as far as anybody can tell, with the last thing that it wrote down: whoever killed it learns of
/// its death only later, when another may have taken over already.
pub fn merge(histories: impl IntoIterator<Item = Vec<Event>>) -> Vec<Event> {
    let mut all: Vec<Event> = histories.into_iter().flatten().collect();
    let dead: Vec<u32> =
        all.iter().filter(|event| event.what == What::Died).filter_map(|event| event.process).collect();
    for process in dead {
        let own = all.iter().filter(|event| event.process == Some(process) && event.what != What::Died);
        let Some(last) = own.map(|event| event.at).max() else { continue };
        let died = all.iter_mut().filter(|event| event.process == Some(process) && event.what == What::Died);
        died.for_each(|event| event.at = last);
    }
    // Stable, and of what happened at once a death comes last.
    all.sort_by_key(|event| (event.at, event.what == What::Died));
    all
}
