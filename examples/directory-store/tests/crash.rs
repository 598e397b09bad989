//! Killing a process half-way, and what is left.
//!
//! This binary is its own child: with a path in its environment it stores there, until it is killed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead as _, BufReader},
    num::NonZeroUsize,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use directory_store::Directory;
use postdate_core::{
    Address, Backend as _, DelayedMessageStore, DelayedMessageStoreExt as _, Due, EndpointName, Message,
    MessageId, TransactionMode,
};

const PLACE: &str = "DIRECTORY_STORE_PLACE";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match env::var_os(PLACE) {
        Some(path) => store_for_ever(path.as_ref()).await,
        None => what_was_acknowledged_survives_a_kill_and_is_free_at_once().await,
    }
}

async fn what_was_acknowledged_survives_a_kill_and_is_free_at_once() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("messages");
    let mut acknowledged = BTreeSet::new();
    for round in 1..=4 {
        let mut child = Command::new(env::current_exe().unwrap())
            .env(PLACE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        acknowledged.extend(lines.by_ref().take(25 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged.extend(lines);
    }
    let batch = open(&path).await.fetch(NonZeroUsize::MAX).await.unwrap();
    let left: BTreeSet<String> = batch.messages.iter().map(|due| due.message.id.to_string()).collect();
    let lost: Vec<_> = acknowledged.difference(&left).collect();
    assert!(acknowledged.len() >= 250 && lost.is_empty(), "of {} lost: {lost:?}", acknowledged.len());
    // Of the batch that was under way when a child was killed there may be all or nothing.
    assert!(
        left.len().is_multiple_of(3) && left.len() <= acknowledged.len() + 4 * 5,
        "{} are left",
        left.len()
    );
    println!("test what_was_acknowledged_survives_a_kill_and_is_free_at_once ... ok");
}

/// Stores batches of three, holds one message of each, and says which are acknowledged.
async fn store_for_ever(path: &Path) {
    let store = open(path).await;
    let billing = Address::new("billing").unwrap();
    loop {
        let ids = [(); 3].map(|()| MessageId::generate());
        let batch = ids.clone().map(|id| Message::new("body").id(id).to(billing.clone(), Due::NOW));
        store.store(&batch).await.unwrap();
        std::mem::forget(store.fetch(NonZeroUsize::MIN).await.unwrap().claim);
        ids.iter().for_each(|id| println!("{id}"));
    }
}

async fn open(path: &Path) -> Arc<dyn DelayedMessageStore> {
    let (directory, orders) = (Directory::open(path).unwrap(), EndpointName::new("orders").unwrap());
    directory.set_up(&orders).await.unwrap();
    directory.open(&orders, TransactionMode::ReceiveOnly).await.unwrap()
}
