//! A pump without delivery beside it.

use super::{Builder, Stopped, running::Running};
use crate::{BreakerName, observer::Reporter};

/// Takes messages from the queue of an endpoint and stores them until they are due, where another process delivers.
///
/// A program hands a message for later to the queue `<endpoint>.timeouts` with
/// [`DelayedMessage::through`](crate::DelayedMessage::through), be it that it cannot reach the store or that it does
/// not want to wait for it. The pump stores the message first and then takes it from the queue, so that none is lost;
/// one that comes again is stored again, which changes nothing. What cannot be stored by its own fault goes to the
/// error queue; while the store is away everything stays in the queue.
///
/// [`Builder::pump`] runs a pump beside delivery, in one handle. This is for programs that only pump; made by
/// [`Builder::start_pump`]. Dropping it cuts it off: what it held is given back. [`stop`](Self::stop) ends it in order.
#[derive(Debug)]
pub struct Pump {
    running: Running,
    reporter: Reporter,
}

impl Pump {
    pub(super) fn new(running: Running, reporter: Reporter) -> Self {
        Self { running, reporter }
    }

    /// Begins to set up a pump for the endpoint of this name.
    pub fn builder(endpoint: impl Into<String>) -> Builder {
        Builder::new(endpoint.into())
    }

    /// The breakers that are tripped now.
    pub fn tripped_breakers(&self) -> Vec<BreakerName> {
        self.reporter.tripped_now()
    }

    /// Whether messages are being taken: until it was [stopped](Self::stop), or died of a fault of its own, which is
    /// raised as a critical error.
    pub fn is_running(&self) -> bool {
        self.running.is_running()
    }

    /// Stops: receives nothing more, waits for what is being stored for at most the drain time, and gives the rest
    /// back.
    pub async fn stop(&self) -> Stopped {
        self.running.tell_to_stop();
        self.running.stopped().await
    }
}
