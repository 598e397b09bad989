//! The one call of the kernel that no library has.
#![expect(unsafe_code, reason = "an ioctl is known to the kernel alone")]

use std::{fs::File, io};

use rustix::ioctl::{Setter, ioctl, opcode};

/// `FS_IOC_SHUTDOWN`: `_IOR('X', 125, __u32)`. The kernel reads its argument all the same.
const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);

/// Stop at once: neither data nor the journal are written back.
const WITHOUT_LOG_FLUSH: u32 = 2;

/// Shuts the file system down on which `file` is, as a power failure would.
pub(crate) fn shut_down(file: &File) -> io::Result<()> {
    // SAFETY: this operation of the kernel reads one `u32` through the pointer that it gets and writes nothing.
    unsafe { ioctl(file, Setter::<SHUTDOWN, u32>::new(WITHOUT_LOG_FLUSH))? };
    Ok(())
}
