//! A real file system that is full, where this process may mount one.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use crash_tests::Disk;
use postdate::{StoreErrorKind, sqlite::Durability};
use tempfile::TempDir;

use crate::{
    examine::examine,
    ledger::Ledger,
    world::{PAST, Trouble, World},
};

/// A small file system in memory, until it is dropped.
struct Tmpfs(TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Result<Self, String> {
        if fs::metadata("/proc/self").map_or(true, |own| own.uid() != 0) {
            return Err("only root may mount".to_owned());
        }
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "postdate-crash"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a thread may be closing a file still.
        drop(Command::new("umount").arg("-l").arg(self.path()).status());
    }
}

#[tokio::test]
async fn s17_l18_a_small_file_system_fills_up_and_nothing_is_lost() {
    let tmpfs = match Tmpfs::mount("2m") {
        Ok(tmpfs) => tmpfs,
        Err(why) => {
            let required = std::env::var("REQUIRE").unwrap_or_default();
            assert!(!required.split(',').any(|what| what == "root"), "{why}");
            println!("skipped: {why}");
            return;
        }
    };
    // The ledger needs some disk to set its marks on.
    let aside = tempfile::tempdir().unwrap();
    let marks = Disk::attach(aside.path()).unwrap();
    let ledger = Ledger::new(&marks, BTreeMap::new());
    let path = tmpfs.path().join("postdate.db");
    let ballast = tmpfs.path().join("ballast");
    fs::write(&ballast, vec![7; 1_200_000]).unwrap();
    let world = World::open(&path, Durability::PowerLoss).await.unwrap();

    let mut stored = 0;
    let refused = loop {
        let name = format!("o{stored}");
        match world.store(&ledger, std::slice::from_ref(&name), PAST).await {
            Ok(()) => stored += 1,
            Err(Trouble::Store(error)) => {
                assert_eq!(error.kind(), StoreErrorKind::Full, "{error:?}");
                break name;
            }
            Err(trouble) => panic!("{trouble:?}"),
        }
    };
    assert!(stored > 5, "it was full from the beginning");
    let mut left = 0;
    while let Ok(count @ 1..) = world.deliver_orders(&ledger, 5).await {
        left += count;
    }
    println!("{stored} were stored, {left} left while it was full");
    fs::remove_file(&ballast).unwrap();
    world.store(&ledger, &[refused], PAST).await.unwrap();
    while world.deliver_orders(&ledger, 5).await.unwrap() > 0 {}
    drop(world);
    let expected = ledger.expected(marks.log().marks(marks.log().entries().len()));
    let (examined, _) = examine(&path, &expected).await;
    assert!(examined.is_sound(), "{examined:?}");
    let delivered = examined.states.values().filter(|state| state.queued == ["billing"]).count();
    assert_eq!(delivered, stored + 1);
}
