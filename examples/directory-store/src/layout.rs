//! What is where in the folder of an endpoint, and what makes a change permanent.

use std::{
    collections::BTreeSet,
    fmt,
    fs::{self, File},
    io,
    panic::resume_unwind,
    path::{Path, PathBuf},
    str::FromStr,
    thread,
};

use jiff::Timestamp;
use postdate_core::OutgoingMessage;

use crate::content::{self, Content, Head};

/// So many files are written at a time.
const WRITERS: usize = 16;

/// The folder of one endpoint.
#[derive(Debug)]
pub(crate) struct Folder {
    new: PathBuf,
    stored: PathBuf,
}

/// All that changes about a message, and where it is. It is the name of its file: one rename changes it as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) position: Position,
    pub(crate) attempt: Timestamp,
    pub(crate) due: Timestamp,
    pub(crate) failures: u32,
}

/// A message's place in the order of storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) batch: u64,
    pub(crate) place: u32,
}

/// A file that is named like a message.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) label: Label,
    pub(crate) head: io::Result<Head>,
    pub(crate) last_error: Option<String>,
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { new: path.join("new"), stored: path.join("stored") }
    }

    /// Makes what is missing.
    pub(crate) fn create(&self) -> io::Result<()> {
        fs::create_dir_all(&self.new)?;
        fs::create_dir_all(&self.stored)
    }

    /// Stores all messages of a batch or none: they are written aside and take their place by one rename.
    pub(crate) fn commit(&self, batch: u64, messages: &[(Label, Content<'_>)]) -> io::Result<()> {
        let (aside, place) = (self.new.join(batch.to_string()), self.batch(batch));
        let commit = || {
            fs::create_dir(&aside)?;
            write_all(&aside, messages)?;
            sync(&aside)?;
            fs::rename(&aside, &place)?;
            sync(&self.stored)
        };
        commit().inspect_err(|_| {
            // Nobody was told that it is stored, and whoever tries again must not find it.
            let _ = fs::remove_dir_all(&aside);
            let _ = fs::remove_dir_all(&place);
        })
    }

    pub(crate) fn read(&self, label: &Label) -> io::Result<OutgoingMessage> {
        content::read(&self.file(label))
    }

    /// Gives a message another label. Permanent after [`sync_batches`](Self::sync_batches).
    pub(crate) fn relabel(&self, from: &Label, to: &Label) -> io::Result<()> {
        fs::rename(self.file(from), self.file(to))
    }

    /// Notes what an attempt said. A crash may take it: it is for people.
    pub(crate) fn note_error(&self, position: Position, error: &str) -> io::Result<()> {
        fs::write(self.error_file(position), error)
    }

    /// Deletes a message. Permanent after [`sync_batches`](Self::sync_batches).
    pub(crate) fn delete(&self, label: &Label) -> io::Result<()> {
        if label.failures > 0 {
            let _ = fs::remove_file(self.error_file(label.position));
        }
        match fs::remove_file(self.file(label)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until what was changed in these batches is permanent.
    pub(crate) fn sync_batches(&self, batches: &BTreeSet<u64>) -> io::Result<()> {
        for batch in batches.iter().map(|batch| self.batch(*batch)) {
            sync(&batch)?;
            // Fails while there is a message in it. That an empty one comes back after a crash does no harm.
            let _ = fs::remove_dir(&batch);
        }
        Ok(())
    }

    /// Finds all messages in the order of storing, and clears away what a crash has left half done.
    pub(crate) fn load(&self) -> io::Result<Vec<Found>> {
        for aside in fs::read_dir(&self.new)? {
            fs::remove_dir_all(aside?.path())?;
        }
        let mut all = Vec::new();
        for folder in fs::read_dir(&self.stored)? {
            let folder = folder?.path();
            let Some(batch) = name(&folder).and_then(|name| name.parse().ok()) else { continue };
            let before = all.len();
            for file in fs::read_dir(&folder)? {
                let file = file?.path();
                // What is not named like a message is not ours.
                let Some(label) = name(&file).and_then(|name| Label::in_batch(batch, name)) else { continue };
                let head = content::head(&file);
                let last_error = fs::read_to_string(self.error_file(label.position)).ok();
                all.push(Found { label, head, last_error });
            }
            if all.len() == before {
                let _ = fs::remove_dir_all(&folder);
            }
        }
        all.sort_by_key(|found| found.label.position);
        Ok(all)
    }

    fn batch(&self, batch: u64) -> PathBuf {
        self.stored.join(batch.to_string())
    }

    fn file(&self, label: &Label) -> PathBuf {
        self.batch(label.position.batch).join(label.to_string())
    }

    fn error_file(&self, position: Position) -> PathBuf {
        self.batch(position.batch).join(format!("{}.error", position.place))
    }
}

impl Label {
    fn in_batch(batch: u64, name: &str) -> Option<Self> {
        let mut parts = name.split('_');
        let label = Self {
            position: Position { batch, place: part(parts.next())? },
            attempt: Timestamp::from_nanosecond(part(parts.next())?).ok()?,
            due: Timestamp::from_nanosecond(part(parts.next())?).ok()?,
            failures: part(parts.next())?,
        };
        // A file of ours has the one name that we would give it.
        (label.to_string() == name).then_some(label)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, attempt, due, failures } = self;
        write!(f, "{}_{}_{}_{failures}", position.place, attempt.as_nanosecond(), due.as_nanosecond())
    }
}

/// Writes the files of a batch, many at a time: syncs that wait together may share a write of the disk.
fn write_all(folder: &Path, messages: &[(Label, Content<'_>)]) -> io::Result<()> {
    let write = |part: &[(Label, Content<'_>)]| {
        part.iter().try_for_each(|(label, content)| content::write(&folder.join(label.to_string()), *content))
    };
    match messages {
        [] | [_] => write(messages),
        _ => thread::scope(|scope| {
            let parts = messages.chunks(messages.len().div_ceil(WRITERS));
            let writers: Vec<_> = parts.map(|part| scope.spawn(move || write(part))).collect();
            writers
                .into_iter()
                .try_for_each(|writer| writer.join().unwrap_or_else(|panic| resume_unwind(panic)))
        }),
    }
}

/// Waits until the names in a directory are permanent. Syncing a file does not do that: after a power failure it
/// may be there without a name.
pub(crate) fn sync(directory: &Path) -> io::Result<()> {
    // Windows has no such call: there a rename is in the journal of the file system or not at all.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

pub(crate) fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn part<T: FromStr>(text: Option<&str>) -> Option<T> {
    text?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written_and_no_other_name_is() {
        for attempt in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            let position = Position { batch: 7, place: 3 };
            let label = Label { position, attempt, due: Timestamp::UNIX_EPOCH, failures: u32::MAX };
            assert_eq!(Label::in_batch(7, &label.to_string()), Some(label));
        }
        for name in ["", "0", "0.error", "0_1_1", "0_1_1_0_0", "+0_1_1_0", "0_1_1_0~", "0_1_1_-1"] {
            assert_eq!(Label::in_batch(7, name), None, "{name}");
        }
    }
}
