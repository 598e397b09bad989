//! Destinations that do as they are told, for an engine on the store under test.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use async_trait::async_trait;
use postdate_core::{DispatchError, DispatchErrorKind, Dispatcher, Enlistment, OutgoingMessage, StoreError};
use tokio::time::{Instant, sleep};

use crate::patience::Patience;

/// What a destination does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Takes,
    TakesAfter(Duration),
    IsDown,
    Refuses,
    Panics,
}

type Script = dyn Fn(&OutgoingMessage) -> Answer + Send + Sync;

/// Destinations, and everything that was sent to them.
pub(crate) struct Scripted {
    script: Box<Script>,
    attempts: Mutex<Vec<Attempt>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) message: OutgoingMessage,
    pub(crate) at: Instant,
    pub(crate) taken: bool,
}

impl Scripted {
    pub(crate) fn new(script: impl Fn(&OutgoingMessage) -> Answer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { script: Box::new(script), attempts: Mutex::default() })
    }

    /// All attempts to send to a destination, in order.
    pub(crate) fn attempts(&self, destination: &str) -> Vec<Attempt> {
        let at = |attempt: &&Attempt| attempt.message.destination.as_str() == destination;
        self.log().iter().filter(at).cloned().collect()
    }

    /// What a destination took, in order.
    pub(crate) fn taken(&self, destination: &str) -> Vec<Attempt> {
        self.attempts(destination).into_iter().filter(|attempt| attempt.taken).collect()
    }

    /// Waits until a destination has taken so many messages.
    pub(crate) async fn takes(&self, destination: &str, count: usize) -> Result<()> {
        let patience = Patience::with("messages to arrive at their destination");
        while self.taken(destination).len() < count {
            patience.a_moment().await?;
        }
        Ok(())
    }

    async fn send(&self, message: &OutgoingMessage) -> Result<(), DispatchError> {
        let answer = (self.script)(message);
        if let Answer::TakesAfter(time) = answer {
            sleep(time).await;
        }
        let taken = matches!(answer, Answer::Takes | Answer::TakesAfter(_));
        self.log().push(Attempt { message: message.clone(), at: Instant::now(), taken });
        match answer {
            Answer::Takes | Answer::TakesAfter(_) => Ok(()),
            Answer::IsDown => Err(DispatchError::new(DispatchErrorKind::Unavailable, "it is down")),
            Answer::Refuses => Err(DispatchError::new(DispatchErrorKind::Rejected, "it refuses")),
            // Without the noise that a panic makes on standard error.
            Answer::Panics => std::panic::resume_unwind(Box::new("the destination panics")),
        }
    }

    fn log(&self) -> MutexGuard<'_, Vec<Attempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

#[async_trait]
impl Dispatcher for Scripted {
    async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn dispatch(
        &self,
        messages: &[OutgoingMessage],
        _: Option<Enlistment<'_>>,
    ) -> Vec<Result<(), DispatchError>> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.push(self.send(message).await);
        }
        outcomes
    }
}
