//! Telling other handles of what was committed.
//!
//! A notification within the transaction that it tells of would make all committers wait for each other: PostgreSQL
//! holds a lock of the whole database from the notification to the end of the commit. So it follows in a transaction
//! of its own, one for many commits, by a task that no caller waits for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postdate_core::wake::Topic;
use tokio::{sync::Notify, time::Instant};

use crate::{
    connections::Connections, error::Result, names::Names, place::within, server::Engine, sql::query,
    time::PgInstant,
};

/// What is due later than this is not told of: whoever dispatches looks at least so often.
pub(crate) const HORIZON: Duration = Duration::from_secs(60);

/// The least time from one notification to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// What is due later may be told of later: after this part of the time until then, and at most a second.
const PART: u32 = 8;
const LATEST: Duration = Duration::from_secs(1);

/// Tells of commits.
#[derive(Debug)]
pub(crate) struct Notifier {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    connections: Arc<Connections>,
    channel: String,
    notify: Arc<str>,
    /// Who speaks: listeners pass over what comes from their own handle.
    speaker: u64,
    pending: Mutex<Pending>,
    earlier: Notify,
    /// Held by who tells.
    telling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Pending {
    news: HashMap<Topic, News>,
    is_running: bool,
}

/// The earliest time at which something happens, and when to tell of it at the latest.
#[derive(Clone, Copy, Debug)]
struct News {
    time: PgInstant,
    tell_by: Instant,
}

impl Notifier {
    pub(crate) fn new(
        connections: Arc<Connections>,
        engine: Engine,
        names: &Names,
        notify: Arc<str>,
        speaker: u64,
    ) -> Self {
        let shared = engine.notifies().then(|| {
            let (pending, earlier) = (Mutex::default(), Notify::new());
            let (channel, telling) = (names.channel(), tokio::sync::Mutex::default());
            Arc::new(Shared { connections, channel, notify, speaker, pending, earlier, telling })
        });
        Self { shared }
    }

    /// Returns when everything is told that was to be told before.
    pub(crate) async fn flush(&self) {
        if let Some(shared) = &self.shared {
            shared.tell_now().await;
        }
    }

    /// Something happens at `time`, and it is `now`.
    pub(crate) fn tell(&self, topic: Topic, time: PgInstant, now: PgInstant) {
        let Some(shared) = self.shared.as_ref().filter(|_| is_near(time, now)) else { return };
        let news = News { time, tell_by: Instant::now() + (left(time, now) / PART).min(LATEST) };
        if shared.add(topic, news) {
            tokio::spawn(run(Running { shared: Arc::clone(shared), is_done: false }));
        }
    }
}

impl Shared {
    /// Tells what there is to tell.
    async fn tell_now(&self) {
        let telling = self.telling.lock().await;
        // Whoever is not told looks within a minute.
        if let Err(fault) = within(self.tell()).await {
            tracing::debug!(?fault, "a notification was not sent");
        }
        drop(telling);
    }

    /// Whether somebody has to begin to tell.
    fn add(&self, topic: Topic, news: News) -> bool {
        let mut pending = self.pending();
        let earliest = pending.news.values().map(|news| news.tell_by).min();
        let known = pending.news.entry(topic).or_insert(news);
        known.time = known.time.min(news.time);
        known.tell_by = known.tell_by.min(news.tell_by);
        if earliest.is_some_and(|earliest| news.tell_by < earliest) {
            self.earlier.notify_one();
        }
        !std::mem::replace(&mut pending.is_running, true)
    }

    /// When to tell next; `None` when there is nothing to tell, and then whoever comes has to begin anew.
    fn next(&self) -> Option<Instant> {
        let mut pending = self.pending();
        let next = pending.news.values().map(|news| news.tell_by).min();
        pending.is_running = next.is_some();
        next
    }

    async fn tell(&self) -> Result<()> {
        let news = std::mem::take(&mut self.pending().news);
        if news.is_empty() {
            return Ok(());
        }
        let words: Vec<String> =
            news.into_iter().map(|(topic, news)| word(self.speaker, topic, news.time)).collect();
        let mut connection = self.connections.lend().await?;
        query(&self.notify).bind(&self.channel).bind(words).execute(&mut *connection).await?;
        connection.give_back();
        Ok(())
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that tells, for as long as there is something to tell.
struct Running {
    shared: Arc<Shared>,
    is_done: bool,
}

/// If it is cut off, the next one who has something to tell begins anew.
impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.pending().is_running = false;
        }
    }
}

async fn run(mut running: Running) {
    let shared = Arc::clone(&running.shared);
    while let Some(at) = shared.next() {
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            () = shared.earlier.notified() => continue,
        }
        shared.tell_now().await;
        tokio::time::sleep(PAUSE).await;
    }
    running.is_done = true;
}

/// The notification of what a caller's own transaction will commit, if there is to be one. It is from nobody, so that
/// everybody hears it: this handle does not learn of the commit otherwise.
pub(crate) fn word_of_caller(endpoint: i32, time: PgInstant, now: PgInstant) -> Option<String> {
    is_near(time, now).then(|| word(0, Topic::Endpoint(endpoint.into()), time))
}

fn left(time: PgInstant, now: PgInstant) -> Duration {
    Duration::from_micros(u64::try_from(time.micros().saturating_sub(now.micros())).unwrap_or(0))
}

fn is_near(time: PgInstant, now: PgInstant) -> bool {
    left(time, now) <= HORIZON
}

/// What is sent: the speaker, and what happens at which time.
fn word(speaker: u64, topic: Topic, time: PgInstant) -> String {
    match topic {
        Topic::Endpoint(number) => format!("{speaker:x} e{number} {}", time.micros()),
        Topic::Queue(number) => format!("{speaker:x} q{number} {}", time.micros()),
    }
}

/// Reads what was sent, unless it is one's own.
pub(crate) fn read(word: &str, listener: u64) -> Option<(Topic, PgInstant)> {
    let mut parts = word.split(' ');
    let speaker = u64::from_str_radix(parts.next()?, 16).ok()?;
    let topic = parts.next()?;
    let time = PgInstant::from_micros(parts.next()?.parse().ok()?);
    let topic = match topic.split_at_checked(1)? {
        ("e", number) => Topic::Endpoint(number.parse().ok()?),
        ("q", number) => Topic::Queue(number.parse().ok()?),
        _ => return None,
    };
    (speaker != listener).then_some((topic, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_by_others() {
        let time = PgInstant::from_micros(-5);
        for topic in [Topic::Endpoint(7), Topic::Queue(1)] {
            assert_eq!(read(&word(0xab, topic, time), 1), Some((topic, time)));
            assert_eq!(read(&word(0xab, topic, time), 0xab), None);
        }
        for other in ["", "x", "1 e", "1 x7 5", "1 e7", "1 e7 x"] {
            assert_eq!(read(other, 2), None, "{other}");
        }
    }
}
