//! Pumps whose batches run on other threads.

use std::time::{Duration, Instant};

use postdate_core::{Backend as _, EndpointName, Memory, Pump, Queues as _, TransactionMode};

use super::scene::{after, message, timeouts};

const MESSAGES: usize = 40;

/// The loop must not miss what a batch says before it ends, or it waits for that batch for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pump_stops_at_once_however_its_batches_end() {
    for _ in 0..100 {
        let memory = Memory::new();
        let queues = memory.queues();
        queues.create(&timeouts()).await.unwrap();
        queues.create(&crate::scenario::address("error")).await.unwrap();
        let pump = Pump::builder("orders")
            .store(memory.clone())
            .pump(queues.receiver(&timeouts()).await.unwrap())
            .error_dispatcher(queues.dispatcher())
            .start_pump()
            .await
            .unwrap();
        for number in 0..MESSAGES {
            let message = message(&format!("{number}"), after(3_600)).through(timeouts());
            for sent in queues.dispatcher().dispatch(&[message], None).await {
                sent.unwrap();
            }
            tokio::task::yield_now().await;
        }
        let endpoint = EndpointName::new("orders").unwrap();
        let store = memory.open(&endpoint, TransactionMode::None).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while store.stats().await.unwrap().pending < MESSAGES as u64 {
            assert!(Instant::now() < deadline, "not all are stored");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let stopped = tokio::time::timeout(Duration::from_secs(10), pump.stop()).await;
        assert_eq!(stopped.expect("a batch that ended is still waited for").cut_off, 0);
    }
}
