//! What a caller may choose.

use std::path::PathBuf;

/// How to run the benches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// A tenth of the messages and of the rounds: shows that all work, not how fast.
    pub quick: bool,
    /// Only scenarios whose name contains one of these; all, if there are none.
    pub names: Vec<String>,
    /// How often each pair is measured. At least one.
    pub rounds: usize,
    /// Where the files are made, in a folder of their own that is removed afterwards. It should be on the disk
    /// that matters: a temporary file system in memory commits for nothing.
    pub folder: PathBuf,
    /// The URL of a PostgreSQL server for the scenarios on it, which are left out otherwise. The user must be allowed to make
    /// databases and checkpoints; nothing else on the server is touched.
    #[cfg(feature = "postgres")]
    pub postgres: Option<String>,
    /// The program of `benches/peers`: other people's queues, which are left out otherwise.
    #[cfg(feature = "postgres")]
    pub peers: Option<PathBuf>,
}

impl Options {
    /// All scenarios, five rounds, in the current folder, without a server.
    pub fn new() -> Self {
        Self {
            quick: false,
            names: Vec::new(),
            rounds: 5,
            folder: PathBuf::from("."),
            #[cfg(feature = "postgres")]
            postgres: None,
            #[cfg(feature = "postgres")]
            peers: None,
        }
    }

    /// The same, quickly: for a first look and for tests.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.quick = true;
        self.rounds = 1;
        self
    }

    /// Whether scenarios were chosen that need a server.
    #[cfg(feature = "postgres")]
    pub fn wants_postgres(&self) -> bool {
        crate::scenarios::POSTGRES.iter().any(|scenario| self.wants(scenario.name))
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.contains(wanted.as_str()))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_chooses_scenarios() {
        let mut options = Options::new();
        assert!(options.wants("store/one-producer"));
        options.names = vec!["drain".into(), "8".into()];
        assert!(options.wants("drain/no-op") && options.wants("store/8-producers"));
        assert!(!options.wants("store/one-producer"));
    }
}
