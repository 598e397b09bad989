//! A file system of our own, in a file.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::shutdown::shut_down;

const SIZE: u64 = 512 << 20;

/// How long to wait until nobody uses it any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// An ext4 file system in a file, mounted until it is dropped.
#[derive(Debug)]
pub(crate) struct Island {
    folder: TempDir,
}

impl Island {
    /// Makes and mounts it.
    pub(crate) fn make() -> Result<Self> {
        use std::{
            fs::Permissions,
            os::unix::fs::{MetadataExt as _, PermissionsExt as _},
        };

        ensure!(std::fs::metadata("/proc/self")?.uid() == 0, "only root may mount file systems");
        let island = Self { folder: tempfile::Builder::new().prefix("postdate-power-").tempdir()? };
        // A server on it is somebody else.
        std::fs::set_permissions(island.folder.path(), Permissions::from_mode(0o711))?;
        File::create(island.image())?.set_len(SIZE)?;
        std::fs::create_dir(island.path())?;
        perform(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(island.image()))?;
        island.mount()?;
        Ok(island)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("island")
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// The power goes off: from now on nothing that is not on the disk will ever be.
    pub(crate) fn power_off(&self) -> Result<()> {
        shut_down(&File::open(self.path())?).context("this kernel cannot shut a file system down")
    }

    /// The power comes back. Nobody may use the file system any more.
    pub(crate) fn power_on(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = perform(Command::new("umount").arg(self.path())) {
            if Instant::now() > deadline {
                return Err(error);
            }
            // A process that was killed goes when it goes.
            thread::sleep(Duration::from_millis(20));
        }
        self.mount()
    }

    fn mount(&self) -> Result<()> {
        perform(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()))
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        if is_mounted(&self.path()) {
            // Lazily, so that it goes in any case; the loop device goes with it.
            drop(Command::new("umount").arg("-l").arg(self.path()).status());
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|mounted| Path::new(mounted) == path))
}

fn perform(command: &mut Command) -> Result<()> {
    let output = match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("{} is not installed", command.get_program().display())
        }
        output => output?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command.get_program().display(), said.trim());
    Ok(())
}
