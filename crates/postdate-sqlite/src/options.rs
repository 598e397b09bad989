//! How a file is opened.

use std::{fmt, str::FromStr, sync::Arc};

use postdate_core::{Clock, SystemClock};

/// How a file is opened. The default survives a power failure and goes by the system's clock.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) durability: Durability,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What an acknowledged message survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// A power failure or a crash of the operating system: every commit waits for the disk
    /// (`synchronous=FULL`; on macOS `fullfsync` too, for the cache of the drive).
    #[default]
    PowerLoss,
    /// A crash of the process, but not of the machine: a power failure may take everything since the last
    /// checkpoint with it (`synchronous=NORMAL`). Single stores are several times as fast.
    ProcessCrash,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self { durability: Durability::default(), clock: Arc::new(SystemClock) }
    }

    /// The same with another durability.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The same by another clock: all processes that use a file should agree on the time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// A text names no durability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDurability(String);

impl fmt::Display for UnknownDurability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown durability {:?}; write power-loss or process-crash", self.0)
    }
}

impl std::error::Error for UnknownDurability {}

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(text: &str) -> Result<Self, UnknownDurability> {
        match text {
            "power-loss" => Ok(Self::PowerLoss),
            "process-crash" => Ok(Self::ProcessCrash),
            _ => Err(UnknownDurability(text.to_owned())),
        }
    }
}
