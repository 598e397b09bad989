//! One destination is down for a while.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use postdate::{
    Backoff, DelayedDelivery, DispatchError, DispatchErrorKind, Dispatcher, Due, Enlistment, Message,
    OutgoingMessage, Queues, Settings, StoreError,
};
use postdate_history::{
    Archive, Event, Guarantee, RecordedBackend, RecordedDispatcher, Way, What, file::Recorder,
};

use crate::{
    children::kept,
    scene::{Diary, Scene, address, all_settled, eventually, ids, rules},
};

const EACH: u32 = 500;

#[tokio::test]
async fn an_outage_consumes_no_retries_and_does_not_hold_up_other_destinations() {
    let scene = Scene::new();
    let sqlite = scene.open_with(&["error", "down", "up"]).await;
    let down = Arc::new(AtomicBool::new(true));
    let (queues, diary) = (sqlite.queues(), Arc::new(Diary::default()));
    let archive = Archive::begin(scene.folder().join("history"), rules(Guarantee::AtLeastOnce, 0)).unwrap();
    let recorder = Arc::new(Recorder::open(&archive.file_of(1), Some(1)).unwrap());
    let dispatcher = Flaky { inner: queues.dispatcher(), down: Arc::clone(&down) };
    let delivery = DelayedDelivery::builder("orders")
        .store(RecordedBackend::new(sqlite.clone(), recorder.clone()))
        .dispatcher(RecordedDispatcher::new(dispatcher, Way::Destination, recorder.clone()))
        .error_dispatcher(RecordedDispatcher::new(queues.dispatcher(), Way::ErrorQueue, recorder.clone()))
        .settings(settings())
        .observer(diary.clone())
        .start()
        .await
        .unwrap();
    let message = |i: u32| Message::new(i.to_string());
    let both = (0..EACH).flat_map(|i| ["down", "up"].map(|to| message(i).to(address(to), Due::NOW)));
    delivery.send_batch(&both.collect::<Vec<_>>()).await.unwrap();

    eventually("delivery to `up`", async || diary.delivered("up") == EACH).await;
    eventually("trying `down` a second time", async || diary.count("held") >= 2).await;
    assert_eq!(diary.delivered("down"), 0);
    assert_eq!(delivery.stats().await.unwrap().failing, 0, "an outage counts against no message");

    down.store(false, Relaxed);
    all_settled(&delivery).await;
    assert_eq!(diary.delivered("down"), EACH);
    assert_eq!(diary.count("attempt failed") + diary.count("moved to error queue"), 0);
    delivery.stop().await;
    recorder.record(What::Stopped);
    archive.record(What::Audited { ids: Vec::new() });
    let arrived = [scene.queued("down").await, scene.queued("up").await].concat();
    let events = arrived.iter().map(|queued| Event::arrived(queued, Way::Destination)).collect();
    let counts = archive.judge(events, &kept("outage")).unwrap().counts;
    assert_eq!((counts.delivered, counts.duplicated, counts.moved), (2 * u64::from(EACH), 0, 0));

    let arrived = scene.queued("down").await;
    let bodies: Vec<_> = arrived.iter().map(|queued| queued.message.body.clone()).collect();
    assert_eq!(bodies, (0..EACH).map(|i| i.to_string()).collect::<Vec<_>>(), "in order, each once");
    assert_eq!(ids(&scene.queued("error").await), [""; 0]);
}

/// No retries at all: one counted failure would move a message to the error queue.
fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.number_of_retries = 0;
    settings.retry_backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(50));
    settings
}

/// Queues of which `down` is unavailable for as long as it is told.
#[derive(Debug)]
struct Flaky {
    inner: Arc<dyn Dispatcher>,
    down: Arc<AtomicBool>,
}

#[async_trait]
impl Dispatcher for Flaky {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        let down = self.down.load(Relaxed);
        let mut outcomes = Vec::new();
        for message in messages {
            if down && message.destination.as_str() == "down" {
                outcomes.push(Err(DispatchError::new(DispatchErrorKind::Unavailable, "no answer")));
            } else {
                outcomes.extend(self.inner.dispatch(std::slice::from_ref(message), None).await);
            }
        }
        outcomes
    }
}
