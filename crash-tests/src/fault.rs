//! Calls that fail on request.

use std::ffi::c_int;

use rusqlite::ffi;

/// A call of SQLite to its file system that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Opening a file.
    Open,
    /// Reading from one.
    Read,
    /// Writing to one.
    Write,
    /// Shortening one.
    Truncate,
    /// Waiting until the disk has it all.
    Sync,
    /// Asking for its size.
    Size,
    /// Locking it.
    Lock,
    /// Mapping the index of the log that connections share.
    MapShared,
    /// Locking a part of that index.
    LockShared,
    /// Deleting a file.
    Delete,
}

/// How much of a write happens although it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Nothing.
    Nothing,
    /// The first half of the bytes.
    Half,
}

/// How long a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// For one call.
    Once,
    /// For all such calls until the disk is [healed](crate::Disk::heal).
    ForGood,
}

/// A call that fails.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Which.
    pub call: Call,
    /// The how many of them from now on, counted from 1.
    pub nth: u64,
    /// For how long.
    pub lasting: Lasting,
    /// What the call answers: an extended result code of SQLite.
    pub code: c_int,
    /// What happens all the same, where it is a write.
    pub extent: Extent,
}

impl Fault {
    /// The `nth` such call fails as on a broken disk.
    pub fn io(call: Call, nth: u64, lasting: Lasting) -> Self {
        let code = match call {
            Call::Open => ffi::SQLITE_CANTOPEN,
            Call::Read => ffi::SQLITE_IOERR_READ,
            Call::Write => ffi::SQLITE_IOERR_WRITE,
            Call::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
            Call::Sync => ffi::SQLITE_IOERR_FSYNC,
            Call::Size => ffi::SQLITE_IOERR_FSTAT,
            Call::Lock => ffi::SQLITE_IOERR_LOCK,
            Call::MapShared => ffi::SQLITE_IOERR_SHMMAP,
            Call::LockShared => ffi::SQLITE_IOERR_SHMLOCK,
            Call::Delete => ffi::SQLITE_IOERR_DELETE,
        };
        Self { call, nth, lasting, code, extent: Extent::Nothing }
    }

    /// The same with another answer.
    #[must_use]
    pub fn code(mut self, code: c_int) -> Self {
        self.code = code;
        self
    }

    /// The same after half of the bytes were written.
    #[must_use]
    pub fn half_done(mut self) -> Self {
        self.extent = Extent::Half;
        self
    }
}

/// A fault and how far it has come.
#[derive(Debug)]
pub(crate) struct Armed {
    fault: Fault,
    seen: u64,
    pub(crate) fired: u64,
    pub(crate) is_over: bool,
}

impl Armed {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault, seen: 0, fired: 0, is_over: false }
    }

    /// What is to happen to a call, if it is to fail.
    pub(crate) fn strikes(&mut self, call: Call) -> Option<(c_int, Extent)> {
        if self.is_over || call != self.fault.call {
            return None;
        }
        self.seen += 1;
        let strikes = match self.fault.lasting {
            Lasting::Once => self.seen == self.fault.nth,
            Lasting::ForGood => self.seen >= self.fault.nth,
        };
        self.fired += u64::from(strikes);
        strikes.then_some((self.fault.code, self.fault.extent))
    }
}
