//! Refusing to live on a network file system.

use std::path::Path;

use postdate_core::StoreErrorKind;

use crate::error::{Fault, Result};

/// Refuses a directory on a network file system: SQLite's write-ahead log lives in memory that all processes
/// share, and locks over a network fail silently. Either loses messages.
///
/// Linux tells the type of the file system, Windows by its canonical path what is behind a drive letter. Elsewhere
/// nothing is refused.
pub(crate) fn check(directory: &Path) -> Result<()> {
    let Some(kind) = network(directory) else { return Ok(()) };
    let detail = format!(
        "{} is on a network file system ({kind}), where SQLite loses data; choose a local disk or a server store",
        directory.display()
    );
    Err(Fault::new(StoreErrorKind::Configuration, detail))
}

#[cfg(target_os = "linux")]
fn network(directory: &Path) -> Option<&'static str> {
    named(rustix::fs::statfs(directory).ok()?.f_type)
}

/// Names of network file systems by the magic numbers of `statfs(2)`. FUSE and 9p are not among them: they are
/// also what containers and virtual machines see of a local disk.
#[cfg(target_os = "linux")]
fn named(magic: impl Into<i64>) -> Option<&'static str> {
    // Architectures differ in its type, and some hand it out sign-extended.
    Some(match magic.into() & 0xffff_ffff {
        0x6969 => "nfs",
        0x517b => "smb",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0x00c3_6400 => "ceph",
        0x5346_414f => "afs",
        0x7375_7245 => "coda",
        0x564c => "ncp",
        0x0bd0_0bd0 => "lustre",
        _ => return None,
    })
}

#[cfg(windows)]
fn network(directory: &Path) -> Option<&'static str> {
    use std::path::{Component, Prefix};
    let canonical = directory.canonicalize();
    match canonical.as_deref().unwrap_or(directory).components().next() {
        Some(Component::Prefix(prefix))
            if matches!(prefix.kind(), Prefix::UNC(..) | Prefix::VerbatimUNC(..)) =>
        {
            Some("a UNC path")
        }
        _ => None,
    }
}

#[cfg(not(any(target_os = "linux", windows)))]
fn network(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_also_when_sign_extended() {
        assert_eq!(named(0x6969_i64), Some("nfs"));
        assert_eq!(named(0xff53_4d42_i64), Some("cifs"));
        assert_eq!(named(0xff53_4d42_u32.cast_signed()), Some("cifs"));
        assert_eq!(named(0xef53_i64), None, "ext4 is local");
    }

    #[test]
    fn a_local_directory_is_fine() {
        check(&std::env::temp_dir()).unwrap();
    }
}
