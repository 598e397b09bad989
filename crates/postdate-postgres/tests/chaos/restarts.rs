//! The server is killed, or stopped, and starts again.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use postdate_core::TransactionMode;
use test_postgres::{Server, Settings};

use crate::{
    clients::Clients,
    ledger::Counts,
    scene::{BATCH, Diary, Scene, deliver, eventually, open},
};

const ROUNDS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn over_restarts_of_the_server_a_shared_transaction_is_exactly_once() {
    let counts = restart_under_load(TransactionMode::TransactionScope).await;
    assert_eq!(counts.duplicates, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_restarts_of_the_server_only_what_was_on_its_way_arrives_again() {
    let counts = restart_under_load(TransactionMode::ReceiveOnly).await;
    assert!(counts.duplicates <= ROUNDS * 2 * BATCH, "{counts}");
}

async fn restart_under_load(mode: TransactionMode) -> Counts {
    let mut server = Server::start(&Settings::fast()).unwrap();
    let scene = Scene::at(&server.url()).await;
    let postgres = scene.open().await;
    let (store, diary) = (open(&postgres, TransactionMode::None).await, Arc::new(Diary::default()));
    let delivery = deliver(&postgres, mode, &diary).await;
    let clients = Clients::default();
    let restart = async {
        for round in 1..=ROUNDS {
            scene.fill(2_000).await;
            let before = diary.dispatched.load(Relaxed);
            eventually("delivery", async || diary.dispatched.load(Relaxed) > before + 200).await;
            let failures = clients.failures();
            // A crash and an orderly end in turn.
            let end = move |server: &mut Server| if round % 2 == 1 { server.kill() } else { server.stop() };
            server = elsewhere(server, move |server| end(server).unwrap()).await;
            eventually("failing", async || clients.failures() > failures).await;
            server = elsewhere(server, |server| server.start_again().unwrap()).await;
        }
        clients.stop();
        server
    };
    let ((), _server) = tokio::join!(clients.store(&scene, &*store), restart);
    let counts = scene.settle().await;
    delivery.stop().await;
    assert!(diary.failed_calls.load(Relaxed) > 0, "delivery never met a server that was gone");
    assert_eq!(diary.counted_failures.load(Relaxed), 0, "an outage counted against messages");
    counts
}

/// Does what takes its time without holding up the clients.
async fn elsewhere(mut server: Server, act: impl FnOnce(&mut Server) + Send + 'static) -> Server {
    let done = tokio::task::spawn_blocking(move || {
        act(&mut server);
        server
    });
    done.await.unwrap()
}
