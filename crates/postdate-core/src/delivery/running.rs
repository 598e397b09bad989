//! An engine that runs in a task of its own.

use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

use super::Stopped;

/// The handle on it. Dropping it cuts the engine off.
#[derive(Debug)]
pub(super) struct Running {
    stop: watch::Sender<bool>,
    ended: watch::Receiver<Option<Stopped>>,
    task: AbortHandle,
}

impl Running {
    /// Starts what `engine` makes of the signal to stop.
    pub(super) fn start<E>(engine: impl FnOnce(watch::Receiver<bool>) -> E) -> Self
    where
        E: Future<Output = Stopped> + Send + 'static,
    {
        let (stop, stopping) = watch::channel(false);
        let (end, ended) = watch::channel(None);
        let engine = engine(stopping);
        let task: JoinHandle<()> = tokio::spawn(async move {
            end.send_replace(Some(engine.await));
        });
        Self { stop, ended, task: task.abort_handle() }
    }

    pub(super) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Tells it to stop.
    pub(super) fn tell_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has stopped.
    pub(super) async fn stopped(&self) -> Stopped {
        let mut ended = self.ended.clone();
        let stopped = ended.wait_for(Option::is_some).await.ok().and_then(|stopped| *stopped);
        stopped.unwrap_or(Stopped { cut_off: 0 })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
