//! The server's clock leaps.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use postdate_core::{Due, Queues as _, Selection, TransactionMode};
use tempfile::TempDir;
use test_postgres::{Server, Settings, libfaketime};

use crate::{
    clients::Clients,
    scene::{Diary, Scene, address, deliver, deliver_with, eventually, limit, open, settings},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// What a server takes for its clock.
struct Clock {
    folder: TempDir,
}

impl Clock {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The server is somebody else where this is root.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let clock = Self { folder };
        clock.show("+0");
        clock
    }

    /// Seconds beside the true time, from now on.
    fn show(&self, seconds: &str) {
        // Never half of it.
        let new = self.folder.path().join("new");
        fs::write(&new, seconds).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    fn settings(&self) -> Settings {
        Settings::fast()
            .environment("LD_PRELOAD", libfaketime().unwrap())
            .environment("FAKETIME_TIMESTAMP_FILE", self.file())
            .environment("FAKETIME_NO_CACHE", "1")
            .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_follows_the_servers_clock_wherever_it_leaps() {
    let clock = Clock::new();
    let server = Server::start(&clock.settings()).unwrap();
    let scene = Scene::at(&server.url()).await;
    let postgres = scene.open().await;
    let (store, diary) = (open(&postgres, TransactionMode::None).await, Arc::new(Diary::default()));
    let mut settings = settings();
    // Nobody is woken when a clock leaps.
    settings.longest_wait = Duration::from_secs(1);
    let delivery = deliver_with(settings, &postgres, TransactionMode::TransactionScope, &diary).await;
    let store_at = async |due| {
        let message = [scene.message(due)];
        scene.note(&message, store.store(&message).await.unwrap());
    };
    let dispatched = || diary.dispatched.load(Relaxed);

    store_at(Due::after(HOUR / 2)).await;
    store_at(Due::NOW).await;
    eventually("delivery", async || dispatched() == 1).await;
    let before = store.stats().await.unwrap().now;
    clock.show("+3600");
    let after = store.stats().await.unwrap().now;
    assert!(after.duration_since(before).as_secs() >= 3_600, "the clock did not leap");
    eventually("delivery after the clock leapt forward", async || dispatched() == 2).await;

    store_at(Due::after(Duration::from_secs(1))).await;
    clock.show("+0");
    // One that is due now is delivered, and that which was due in a second is due in an hour.
    store_at(Due::NOW).await;
    eventually("delivery after the clock leapt back", async || dispatched() == 3).await;
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.pending, stats.overdue, dispatched()), (1, 0, 3));
    clock.show("+3660");
    eventually("delivery after the clock leapt forward again", async || dispatched() == 4).await;
    delivery.stop().await;
    let counts = scene.settle().await;
    assert_eq!((counts.arrived, counts.duplicates), (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn leaps_of_the_servers_clock_under_load_lose_and_double_nothing() {
    let clock = Clock::new();
    let server = Server::start(&clock.settings()).unwrap();
    let scene = Scene::at(&server.url()).await;
    let postgres = scene.open().await;
    let (store, diary) = (open(&postgres, TransactionMode::None).await, Arc::new(Diary::default()));
    let delivery = deliver(&postgres, TransactionMode::TransactionScope, &diary).await;
    let clients = Clients::default();
    let leap = async {
        for hours in 1..=5_u64 {
            scene.fill(1_000).await;
            let before = diary.dispatched.load(Relaxed);
            eventually("delivery", async || diary.dispatched.load(Relaxed) > before + 100).await;
            clock.show(&format!("+{}", hours * 3_600));
        }
        clients.stop();
    };
    tokio::join!(clients.store(&scene, &*store), leap);
    let counts = scene.settle().await;
    delivery.stop().await;
    assert_eq!((counts.arrived, counts.duplicates), (5_000, 0));
    assert_eq!(diary.counted_failures.load(Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_a_queued_message_ends_wherever_the_servers_clock_leaps() {
    let clock = Clock::new();
    let server = Server::start(&clock.settings()).unwrap();
    let scene = Scene::at(&server.url()).await;
    let queues = scene.open().await.queues();
    let sent = queues.dispatcher().dispatch(&[scene.message(Due::NOW).message], None).await;
    assert!(sent.iter().all(Result::is_ok));
    let (one, other) = (
        queues.receiver(&address("billing")).await.unwrap(),
        queues.receiver(&address("billing")).await.unwrap(),
    );
    let next = Selection::Next(limit(1));
    // Forward the lease is over; back it would last for an hour, which no lease does.
    for leap in ["+3600", "+0"] {
        let mut lost = one.try_receive(&next).await.unwrap();
        let positions: Vec<u64> = lost.messages.iter().map(|queued| queued.position).collect();
        assert_eq!(
            (positions.len(), other.try_receive(&next).await.unwrap().messages.len()),
            (1, 0),
            "{leap}"
        );
        clock.show(leap);
        let mut taken = other.try_receive(&next).await.unwrap();
        assert_eq!(taken.messages.len(), 1, "the lock did not end at {leap}");
        assert_eq!(lost.claim.complete(&positions).await.unwrap(), [false], "{leap}");
        assert_eq!(taken.claim.abandon(&positions).await.unwrap(), [true], "{leap}");
    }
}
