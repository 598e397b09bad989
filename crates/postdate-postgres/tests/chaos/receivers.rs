//! Who receives from a queue over faults.

use std::{collections::BTreeMap, sync::Mutex};

use futures::future::join_all;
use postdate_core::{Due, MessageId, Queues as _, Receiver, Selection};

use crate::{
    chance::Chance,
    cuts::through_proxy,
    scene::{Scene, address, again, eventually, limit},
};

const MESSAGES: usize = 2_000;

/// Each connection is cut within so many bytes of one direction, and so many are at least.
const WITHIN: u64 = 6_000;
const CUTS: usize = 30;

/// How often each message was received and how often a receiver was told that it is done with it.
#[derive(Debug, Default)]
struct Handled(Mutex<BTreeMap<MessageId, (u32, u32)>>);

#[tokio::test(flavor = "multi_thread")]
async fn over_cuts_every_message_is_received_and_none_that_was_completed_comes_back() {
    let scene = Scene::shared().await;
    let (proxy, postgres) = through_proxy(&scene).await;
    let messages: Vec<_> = (0..MESSAGES).map(|_| scene.message(Due::NOW).message).collect();
    let sent = scene.open().await.queues().dispatcher().dispatch(&messages, None).await;
    assert!(sent.iter().all(Result::is_ok));
    let (handled, queues) = (Handled::default(), postgres.queues());
    let receivers =
        join_all((0..4).map(|_| async { queues.receiver(&address("billing")).await.unwrap() })).await;
    proxy.cut_each_within(WITHIN, Chance::new());
    proxy.cut_all();
    let work = join_all(receivers.iter().map(|receiver| receive_all(&scene, &**receiver, &handled)));
    tokio::select! {
        _ = work => {}
        () = eventually("receiving everything", async || false) => {}
    }
    println!("{} cuts", proxy.struck());
    assert!(proxy.struck() >= CUTS, "there was hardly a fault");
    assert_eq!(scene.depth().await, 0);
    let handled = handled.0.into_inner().unwrap();
    assert_eq!(handled.len(), MESSAGES, "not every message was received");
    let again = handled.values().filter(|(received, _)| *received > 1).count();
    println!("{again} messages were received again");
    // Of what is cut off at most each receiver's batch comes back.
    assert!(again <= proxy.struck() * 10, "{again} messages were received again");
    assert!(handled.values().all(|(_, completed)| *completed <= 1), "one was completed twice");
    scene.end().await;
}

/// Receives and completes until nothing is left.
async fn receive_all(scene: &Scene, receiver: &dyn Receiver, handled: &Handled) {
    while scene.depth().await > 0 {
        let selection = Selection::Next(limit(10));
        let mut batch = again(async || receiver.try_receive(&selection).await).await;
        if batch.messages.is_empty() {
            // What was taken by a call whose answer was cut off would be back in half a minute.
            scene.end_leases().await;
            continue;
        }
        let positions: Vec<u64> = batch.messages.iter().map(|queued| queued.position).collect();
        for queued in &batch.messages {
            handled.received(&queued.message.id);
        }
        let settled = again(async || batch.claim.complete(&positions).await).await;
        for (queued, done) in batch.messages.iter().zip(settled) {
            // False may be the answer to the second call although the first was carried out.
            if done {
                handled.completed_one(&queued.message.id);
            }
        }
    }
}

impl Handled {
    fn received(&self, id: &MessageId) {
        let mut handled = self.0.lock().unwrap();
        let (received, completed) = handled.entry(id.clone()).or_default();
        assert_eq!(*completed, 0, "{id} was completed and came back");
        *received += 1;
    }

    fn completed_one(&self, id: &MessageId) {
        self.0.lock().unwrap().entry(id.clone()).or_default().1 += 1;
    }
}
