//! Files that cannot be used, and what is said about them.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
};

use postdate_core::{DelayedMessageStoreExt, StoreError, StoreErrorKind};
use postdate_sqlite::Sqlite;

use crate::place::{Place, eventually, limit, message};

/// Opens the file, which must fail and leave it as it is.
async fn refused(place: &Place) -> StoreError {
    let before = fs::read(place.path()).unwrap();
    let error = Sqlite::open(place.path()).await.unwrap_err();
    assert_eq!(fs::read(place.path()).unwrap(), before, "the file was changed");
    error
}

#[tokio::test]
async fn the_database_of_another_application_is_refused_and_left_alone() {
    for mode in ["delete", "wal"] {
        let place = Place::new();
        let foreign = rusqlite::Connection::open(place.path()).unwrap();
        foreign.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(())).unwrap();
        foreign.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)").unwrap();
        let error = refused(&place).await;
        assert_eq!(error.kind(), StoreErrorKind::Corrupt);
        assert!(error.to_string().contains("choose another path"), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    for content in [&b"x"[..], &[b'x'; 600], &[b'x'; 9_000]] {
        let place = Place::new();
        fs::write(place.path(), content).unwrap();
        assert_eq!(refused(&place).await.kind(), StoreErrorKind::Corrupt, "{} bytes", content.len());
    }
}

#[tokio::test]
async fn the_file_of_a_newer_postdate_is_refused_and_left_alone() {
    let place = Place::new();
    drop(place.store().await);
    let raw = rusqlite::Connection::open(place.path()).unwrap();
    raw.pragma_update(None, "user_version", 1_000).unwrap();
    let error = refused(&place).await;
    assert_eq!(error.kind(), StoreErrorKind::TooNew);
    assert!(error.to_string().contains("update this postdate"), "{error}");
}

#[tokio::test]
async fn paths_that_lead_nowhere_are_refused_with_advice() {
    let place = Place::new();
    for (path, advice) in [
        (place.directory.path().join("no/such/x.db"), "create it"),
        (place.directory.path().to_owned(), "name of a file"),
    ] {
        let error = Sqlite::open(path).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration);
        assert!(error.to_string().contains(advice), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_with_two_names_is_refused_and_left_alone() {
    let place = Place::new();
    fs::write(place.path(), b"").unwrap();
    fs::hard_link(place.path(), place.directory.path().join("other.db")).unwrap();
    let error = refused(&place).await;
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[tokio::test]
async fn an_empty_file_is_taken() {
    let place = Place::new();
    fs::write(place.path(), b"").unwrap();
    place.store().await.store_one(message("a")).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_reported_as_such() {
    let place = Place::new();
    let store = place.store().await;
    let batch: Vec<_> = (0..200).map(|n| message(&format!("m{n}"))).collect();
    store.store(&batch).await.unwrap();
    drop(store);
    // The last connection writes the log back and deletes it. Two that are closed at the same moment take each
    // other for the last.
    let log = place.directory.path().join("postdate.db-wal");
    eventually("the file is closed", || async {
        let last = rusqlite::Connection::open(place.path()).unwrap();
        last.query_row("SELECT count(*) FROM message", [], |row| row.get::<_, i64>(0)).unwrap();
        drop(last);
        !log.exists()
    })
    .await;
    damage(&place);

    let store = place.store().await;
    let error = store.fetch(limit(200)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
}

/// Overwrites every leaf of the tables and indexes, but not the schema, and not the endpoint's name.
fn damage(place: &Place) {
    const PAGE: u64 = 4_096;
    let mut file = OpenOptions::new().read(true).write(true).open(place.path()).unwrap();
    let pages = file.metadata().unwrap().len() / PAGE;
    let mut damaged = 0;
    for page in 1..pages {
        let mut content = vec![0; 4_096];
        file.seek(SeekFrom::Start(page * PAGE)).unwrap();
        file.read_exact(&mut content).unwrap();
        if content.windows(7).any(|bytes| bytes == b"billing") {
            file.seek(SeekFrom::Start(page * PAGE)).unwrap();
            file.write_all(&[0xff; 4_096]).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "nothing was damaged");
}
