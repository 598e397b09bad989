//! The histories of a real run, from several processes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{Event, Rules, Verdict, What, file, judge};

/// A folder in which each process of a run writes its history.
#[derive(Debug)]
pub struct Archive {
    folder: PathBuf,
    outside: file::Recorder,
}

impl Archive {
    /// Begins a run in a new folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(folder: PathBuf, rules: Rules) -> Result<Self> {
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let outside = file::Recorder::open(&folder.join("outside.jsonl"), None)?;
        outside.record(What::Began { rules });
        Ok(Self { folder, outside })
    }

    /// Where a process writes.
    pub fn file_of(&self, process: u32) -> PathBuf {
        self.folder.join(format!("{process}.jsonl"))
    }

    /// What a process has written so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn history_of(&self, process: u32) -> Result<Vec<Event>> {
        let file = self.file_of(process);
        if file.exists() { file::read(&file) } else { Ok(Vec::new()) }
    }

    /// Something happened outside of all processes.
    pub fn record(&self, what: What) {
        self.outside.record(what);
    }

    /// A process was killed and is gone.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn died(&self, process: u32) -> Result<()> {
        file::Recorder::open(&self.file_of(process), Some(process))?.record(What::Died);
        Ok(())
    }

    /// Judges the run, of which these messages are what arrived.
    ///
    /// # Errors
    /// When a promise is broken. The whole history is in `keep` then.
    pub fn judge(self, arrived: Vec<Event>, keep: &Path) -> Result<Verdict> {
        let mut histories = vec![arrived];
        for entry in fs::read_dir(&self.folder)? {
            histories.push(file::read(&entry?.path())?);
        }
        let history = file::merge(histories);
        let verdict = judge(&history)?;
        if !verdict.is_clean() {
            file::write(keep, &history)?;
        }
        let again = "cargo run -p postdate-history --bin judge --";
        ensure!(verdict.is_clean(), "{verdict}\njudge it again: {again} {}", keep.display());
        Ok(verdict)
    }
}
