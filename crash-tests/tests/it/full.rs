//! The disk is full for a while.

use std::collections::BTreeMap;

use crash_tests::Chance;
use postdate::{StoreErrorKind, sqlite::Durability};

use crate::{
    examine::examine,
    images::Recording,
    ledger::Ledger,
    place::{Place, connect, many, seed},
    world::{PAST, Result, Trouble, World},
};

struct Scene {
    place: Place,
    ledger: Ledger,
    world: World,
}

impl Scene {
    async fn new() -> Self {
        let place = Place::new();
        let ledger = Ledger::new(&place.disk, BTreeMap::new());
        let world = World::open(&place.path(), Durability::PowerLoss).await.unwrap();
        Self { place, ledger, world }
    }

    /// Stores messages of these names until one does not fit. Answers which.
    async fn fill(&self, prefix: &str) -> String {
        for number in 0..1_000 {
            let name = format!("{prefix}{number}");
            if let Err(trouble) = self.store(&name).await {
                assert_full(&trouble);
                return name;
            }
        }
        panic!("the disk never fills up");
    }

    async fn store(&self, name: &str) -> Result<()> {
        self.world.store(&self.ledger, &[name.to_owned()], PAST).await
    }

    /// How many messages leave before nothing is due any more or a call fails.
    async fn deliver(&self) -> (usize, Result<()>) {
        let mut delivered = 0;
        loop {
            match self.world.deliver_orders(&self.ledger, 5).await {
                Ok(0) => return (delivered, Ok(())),
                Ok(count) => delivered += count,
                Err(trouble) => return (delivered, Err(trouble)),
            }
        }
    }

    /// Everything that was acknowledged is there, now and after a power failure at any time.
    async fn end(self) {
        drop(self.world);
        self.place.wait_until_closed();
        let recording = Recording::of(&self.place, self.ledger);
        let expected = recording.ledger.expected(recording.log.marks(recording.log.entries().len()));
        let (examined, world) = examine(&self.place.path(), &expected).await;
        assert!(examined.is_sound(), "{examined:?}");
        drop(world);
        self.place.wait_until_closed();
        let mut chance = Chance::new(seed());
        recording.crash_often(many(20), &mut chance).await.assert_sound("a full disk");
    }
}

fn assert_full(trouble: &Trouble) {
    let Trouble::Store(error) = trouble else { panic!("{trouble:?}") };
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error:?}");
    assert!(error.is_transient() && error.to_string().contains("free some space"), "{error}");
}

#[tokio::test]
async fn s17_l18_what_does_not_fit_is_refused_and_fits_once_there_is_space() {
    let scene = Scene::new().await;
    for round in ["oa", "ob"] {
        scene.place.disk.limit(Some(scene.place.disk.used() + 100_000));
        let refused = scene.fill(round).await;
        assert!(scene.place.disk.refused() > 0);
        assert_full(&scene.store(&refused).await.unwrap_err());
        scene.place.disk.limit(None);
        scene.store(&refused).await.unwrap();
        scene.deliver().await.1.unwrap();
        while scene.world.receive(&scene.ledger, 10).await.unwrap() > 0 {}
    }
    scene.end().await;
}

#[tokio::test]
async fn l18_due_messages_leave_while_the_disk_is_full() {
    let scene = Scene::new().await;
    // A file that has been in use for a while: pages that were freed, and a log that was not written back since.
    for number in 0..120 {
        scene.store(&format!("oa{number}")).await.unwrap();
    }
    scene.deliver().await.1.unwrap();
    while scene.world.receive(&scene.ledger, 100).await.unwrap() > 0 {}
    let checkpoint = |connection: rusqlite::Connection| {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    };
    connect(&scene.place.path()).and_then(checkpoint).unwrap();
    for number in 0..40 {
        scene.store(&format!("ob{number}")).await.unwrap();
    }
    scene.place.disk.limit(Some(scene.place.disk.used()));
    let (mut left, mut refusals) = (0, 0);
    while left < 40 {
        let (delivered, ended) = scene.deliver().await;
        left += delivered;
        if let Err(trouble) = ended {
            assert_full(&trouble);
            refusals += 1;
            assert!(refusals < 10, "only {left} of 40 could leave");
        }
    }
    println!("{left} left, after {refusals} refusals");
    assert!(refusals > 0 && scene.place.disk.refused() > 0, "the disk was not full");
    scene.place.disk.limit(None);
    scene.store("oc").await.unwrap();
    scene.end().await;
}

#[tokio::test]
async fn l18_where_nothing_fits_any_more_everything_goes_on_once_there_is_space() {
    let scene = Scene::new().await;
    for number in 0..20 {
        scene.store(&format!("o{number}")).await.unwrap();
    }
    // Neither the log nor, behind it, the database can grow.
    scene.place.disk.limit(Some(0));
    for _ in 0..3 {
        assert_full(&scene.store("o20").await.unwrap_err());
        let (delivered, ended) = scene.deliver().await;
        assert_eq!(delivered, 0);
        assert_full(&ended.unwrap_err());
    }
    scene.place.disk.limit(None);
    scene.store("o20").await.unwrap();
    let (delivered, ended) = scene.deliver().await;
    ended.unwrap();
    assert_eq!(delivered, 21);
    scene.end().await;
}
