//! A bar for work that takes more than a second, where somebody is watching.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::Output;

/// Work of less than this is over before a bar could be read.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far some work is.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    begun: Instant,
    seen: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `total` pieces of work; `what` is done to them, as a word: `retried`.
    pub(crate) fn new(output: &Output, what: &'static str, total: u64) -> Self {
        Self { what, total, done: 0, begun: Instant::now(), seen: output.shows_progress(), bar: None }
    }

    /// So many more are done.
    pub(crate) fn advance(&mut self, count: usize) {
        self.done += count as u64;
        if !self.seen || self.begun.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos} of {len} {msg}")
                .expect("the template is a constant that a test draws");
            ProgressBar::new(self.total).with_style(style).with_message(self.what)
        });
        bar.set_position(self.done);
    }

    /// Does something that writes to the terminal, without drawing into it.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_only_after_a_second_and_only_if_somebody_watches() {
        let long_ago = Instant::now().checked_sub(PATIENCE).unwrap();
        for (begun, seen, drawn) in
            [(Instant::now(), true, false), (long_ago, false, false), (long_ago, true, true)]
        {
            let mut progress = Progress { what: "retried", total: 10, done: 0, begun, seen, bar: None };
            progress.advance(3);
            assert_eq!(progress.bar.is_some(), drawn);
        }
    }
}
