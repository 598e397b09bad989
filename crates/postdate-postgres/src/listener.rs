//! Hearing of what other handles committed.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postdate_core::wake::Wakes;
use sqlx::{
    PgConnection,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::task::JoinHandle;

use crate::{
    Options,
    names::Names,
    notifier::{self, HORIZON},
    server::Engine,
};

/// How long one's own word may take to come back.
const ECHO_LIMIT: Duration = Duration::from_secs(5);

/// How long it may take until one listens.
const BEGIN_LIMIT: Duration = Duration::from_secs(30);

/// When to try again where nothing comes through: it may have been a moment's silence.
const DEAF_PAUSE: Duration = Duration::from_secs(300);

/// The pause after the connection broke, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Listens on a connection of its own, from the first time on that somebody waits.
#[derive(Debug)]
pub(crate) struct Listener {
    ear: Arc<Ear>,
    poll: Duration,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Ear {
    connect: PgConnectOptions,
    channel: String,
    speaker: u64,
    wakes: Arc<Wakes>,
    /// Whether the engine has notifications.
    has_ears: bool,
    /// Notifications do not come through, as far as is known: there is a pooler in between, say.
    is_deaf: AtomicBool,
}

impl Listener {
    pub(crate) fn new(
        options: &Options,
        engine: Engine,
        names: &Names,
        wakes: Arc<Wakes>,
        speaker: u64,
    ) -> Self {
        let ear = Ear {
            connect: options.connect.clone(),
            channel: names.channel(),
            speaker,
            wakes,
            has_ears: engine.notifies(),
            is_deaf: AtomicBool::new(!engine.notifies()),
        };
        Self { ear: Arc::new(ear), poll: options.poll, task: Mutex::default() }
    }

    /// Begins to listen, and says how long to wait at most without hearing anything.
    pub(crate) fn listen(&self) -> Duration {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // It ends with the runtime that it was begun in.
        if self.ear.has_ears && task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(listen(Arc::clone(&self.ear))));
        }
        if self.ear.is_deaf.load(Ordering::Acquire) { self.poll } else { HORIZON }
    }
}

/// The driver's own would show the password.
impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ear").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

async fn listen(ear: Arc<Ear>) {
    let mut pause = PAUSES.0;
    loop {
        match tokio::time::timeout(BEGIN_LIMIT, begin(&ear)).await {
            Ok(Ok(Some(listener))) => {
                pause = PAUSES.0;
                hear(&ear, listener).await;
            }
            Ok(Ok(None)) => {
                tracing::warn!(
                    "notifications do not come through, is there a pooler? looking for messages instead"
                );
                tokio::time::sleep(DEAF_PAUSE).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "cannot listen"),
            Err(_) => tracing::debug!("the server does not answer"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// Begins to listen; `None` if nothing comes through.
async fn begin(ear: &Ear) -> sqlx::Result<Option<PgListener>> {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let mut listener = PgListener::connect_with(&pool.connect_lazy_with(ear.connect.clone())).await?;
    listener.ignore_pool_close_event(true);
    listener.eager_reconnect(false);
    listener.listen(&ear.channel).await?;
    let hears = hears_itself(ear, &mut listener).await?;
    ear.is_deaf.store(!hears, Ordering::Release);
    // Whatever happened until now was not heard.
    ear.wakes.ring_all();
    Ok(hears.then_some(listener))
}

/// Hears until the connection breaks. One that nothing comes through may be broken without anybody's knowing, and so it
/// is tried now and then.
async fn hear(ear: &Ear, mut listener: PgListener) {
    loop {
        match tokio::time::timeout(HORIZON, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                if let Some((topic, time)) = notifier::read(notification.payload(), ear.speaker) {
                    ear.wakes.ring(topic, time.micros(), None);
                }
            }
            Ok(_) => return,
            Err(_) => {
                let alive = sqlx::query("SELECT 1").execute(&mut listener);
                if !tokio::time::timeout(ECHO_LIMIT, alive).await.is_ok_and(|alive| alive.is_ok()) {
                    return;
                }
            }
        }
    }
}

/// Whether a notification from another connection arrives.
async fn hears_itself(ear: &Ear, listener: &mut PgListener) -> sqlx::Result<bool> {
    use sqlx::{ConnectOptions as _, Connection as _};

    let mut other: PgConnection = ear.connect.connect().await?;
    let word = format!("{:x} echo", ear.speaker);
    sqlx::query("SELECT pg_notify($1, $2)").bind(&ear.channel).bind(&word).execute(&mut other).await?;
    other.close().await?;
    let echo = async {
        while listener.recv().await?.payload() != word {}
        Ok(())
    };
    tokio::time::timeout(ECHO_LIMIT, echo)
        .await
        .map_or(Ok(false), |heard: sqlx::Result<()>| heard.map(|()| true))
}
