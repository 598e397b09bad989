//! What the suite cannot see: the directory after a crash, an error of the disk, or somebody's hands.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use directory_store::Directory;
use postdate_core::{
    Address, Backend as _, Cancellation, DelayedMessage, DelayedMessageStore, DelayedMessageStoreExt as _,
    Due, EndpointName, Failure, Filter, ListQuery, Message, MessageId, StoreError, StoreErrorKind,
    TransactionMode,
};
use tempfile::TempDir;

const ALL: NonZeroUsize = NonZeroUsize::MAX;

#[tokio::test]
async fn a_damaged_message_is_shown_and_can_be_cancelled_and_the_rest_is_delivered() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await.unwrap();
    let later = message("later", Due::after(Duration::from_secs(3_600)));
    store.store(&[message("a", Due::NOW), message("b", Due::NOW), later]).await.unwrap();
    let damaged = file_of(&place, "a\n");
    fs::write(&damaged, "a\nbilling\n0 99\n").unwrap();

    assert_eq!(fetched(&*store).await, ["b"]);
    assert_eq!(listed(&*store).await, ["a", "b", "later"]);
    assert!(store.get(&id("a")).await.unwrap().is_none(), "there is nothing to show of its content");
    assert_eq!(store.fetch(ALL).await.unwrap().messages.len(), 1, "it is not tried again");

    drop(store);
    let reopened = open(&place).await.unwrap();
    assert_eq!(fetched(&*reopened).await, ["b"]);
    assert_eq!(listed(&*reopened).await, ["unreadable 1/0", "b", "later"]);
    assert_eq!(reopened.stats().await.unwrap().overdue, 1);
    let cancelled = reopened.cancel(&[id("unreadable 1/0")]).await.unwrap();
    assert!(cancelled == [Cancellation::Cancelled] && !damaged.exists());
}

#[tokio::test]
async fn a_batch_that_a_crash_left_half_written_is_cleared_away() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await.unwrap();
    store.store_one(message("a", Due::NOW)).await.unwrap();
    drop(store);
    let aside = place.path().join("messages/1/new/2");
    fs::create_dir(&aside).unwrap();
    fs::copy(file_of(&place, "a\n"), aside.join("0_0_0_0")).unwrap();

    let store = open(&place).await.unwrap();
    assert!(!aside.exists());
    assert_eq!(fetched(&*store).await, ["a"]);
    store.store_one(message("b", Due::NOW)).await.unwrap();
    assert_eq!(fetched(&*store).await, ["a", "b"]);
}

#[tokio::test]
async fn an_error_of_the_disk_is_no_acknowledgement_and_later_work_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await.unwrap();
    let new = place.path().join("messages/1/new");
    fs::remove_dir(&new).unwrap();
    let error = store.store_one(message("a", Due::NOW)).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("look at the disk"), "{error}");
    fs::create_dir(&new).unwrap();
    assert!(listed(&*store).await.is_empty());
    store.store_one(message("a", Due::NOW)).await.unwrap();
    drop(store);
    assert_eq!(fetched(&*open(&place).await.unwrap()).await, ["a"]);
}

#[tokio::test]
async fn what_an_attempt_said_survives_reopening_and_goes_with_its_message() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await.unwrap();
    store.store_one(message("a", Due::NOW)).await.unwrap();
    let mut claim = store.fetch(ALL).await.unwrap().claim;
    let failure = Failure { id: id("a"), retry_after: Duration::ZERO, error: "no answer".into() };
    claim.increment_failure_count(&[failure]).await.unwrap();
    drop((claim, store));

    let reopened = open(&place).await.unwrap();
    let seen = reopened.get(&id("a")).await.unwrap().unwrap();
    assert_eq!((seen.message.failures, seen.last_error.as_deref()), (1, Some("no answer")));
    reopened.cancel(&[id("a")]).await.unwrap();
    assert_eq!(files(place.path()), ["lock", "name", "version"]);
}

#[tokio::test]
async fn what_was_asked_for_survives_a_rescheduling_and_reopening() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await.unwrap();
    let at = |second| message("a", Due::At(jiff::Timestamp::new(second, 1).unwrap()));
    store.store_one(at(4_000_000_000)).await.unwrap();
    let later = jiff::Timestamp::new(5_000_000_000, 0).unwrap();
    store.reschedule(&id("a"), Due::At(later)).await.unwrap();
    drop(store);

    let reopened = open(&place).await.unwrap();
    assert_eq!(reopened.store_one(at(4_000_000_000)).await.unwrap(), later);
    assert_eq!(reopened.store_one(message("a", Due::NOW)).await.unwrap(), later);
    let refused = reopened.store_one(at(5_000_000_000)).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Conflict);
}

#[tokio::test]
async fn a_file_with_the_id_of_another_does_not_take_its_place() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await.unwrap();
    store.store(&[message("a", Due::NOW), message("b", Due::NOW)]).await.unwrap();
    drop(store);
    let batch = place.path().join("messages/1/stored/1");
    fs::copy(file_of(&place, "a\n"), batch.join("9_0_0_0")).unwrap();
    fs::write(batch.join("README"), "not ours").unwrap();

    let store = open(&place).await.unwrap();
    assert_eq!(fetched(&*store).await, ["a", "b"]);
    assert_eq!(listed(&*store).await, ["unreadable 1/9", "a", "b"]);
}

#[tokio::test]
async fn a_directory_of_a_newer_version_or_of_somebody_else_is_refused_and_left_alone() {
    let place = tempfile::tempdir().unwrap();
    open(&place).await.unwrap().store_one(message("a", Due::NOW)).await.unwrap();
    for (version, kind) in [("2\n", StoreErrorKind::TooNew), ("draft", StoreErrorKind::Corrupt)] {
        let path = place.path().join("messages/version");
        fs::write(&path, version).unwrap();
        assert_eq!(open(&place).await.unwrap_err().kind(), kind);
        let directory = Directory::open(place.path().join("messages")).unwrap();
        let refused = directory.open(&orders(), TransactionMode::ReceiveOnly).await.unwrap_err();
        assert_eq!(refused.kind(), kind);
        assert_eq!(fs::read_to_string(&path).unwrap(), version);
    }
}

#[tokio::test]
async fn a_directory_is_used_by_one_at_a_time_and_is_free_with_the_last_claim() {
    let place = tempfile::tempdir().unwrap();
    let store = open(&place).await.unwrap();
    store.store_one(message("a", Due::NOW)).await.unwrap();
    let claim = store.fetch(ALL).await.unwrap().claim;
    drop(store);
    let error = open(&place).await.unwrap_err();
    assert!(error.kind() == StoreErrorKind::Unavailable && error.to_string().contains("in use"), "{error}");
    drop(claim);
    assert_eq!(fetched(&*open(&place).await.unwrap()).await, ["a"]);
}

async fn open(place: &TempDir) -> Result<Arc<dyn DelayedMessageStore>, StoreError> {
    let directory = Directory::open(place.path().join("messages"))?;
    directory.set_up(&orders()).await?;
    directory.open(&orders(), TransactionMode::ReceiveOnly).await
}

fn orders() -> EndpointName {
    EndpointName::new("orders").unwrap()
}

fn id(id: &str) -> MessageId {
    MessageId::new(id).unwrap()
}

fn message(id: &str, due: Due) -> DelayedMessage {
    Message::new("body").id(self::id(id)).to(Address::new("billing").unwrap(), due)
}

/// The ids of what is due; all of it is given back.
async fn fetched(store: &dyn DelayedMessageStore) -> Vec<String> {
    let batch = store.fetch(ALL).await.unwrap();
    batch.messages.iter().map(|due| due.message.id.to_string()).collect()
}

async fn listed(store: &dyn DelayedMessageStore) -> Vec<String> {
    let page = store.list(&ListQuery::new(Filter::default(), ALL)).await.unwrap();
    page.messages.into_iter().map(|line| line.id.to_string()).collect()
}

/// The file that begins so.
fn file_of(place: &TempDir, beginning: &str) -> PathBuf {
    let batch = fs::read_dir(place.path().join("messages/1/stored/1")).unwrap();
    let mut paths = batch.map(|file| file.unwrap().path());
    paths.find(|path| fs::read(path).unwrap().starts_with(beginning.as_bytes())).unwrap()
}

/// The names of all files, wherever they are, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            names.extend(files(&path));
        } else {
            names.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    names.sort();
    names
}
