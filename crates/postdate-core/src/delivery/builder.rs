//! Choosing what delayed delivery is made of.

use std::{fmt, sync::Arc};

use super::{
    DelayedDelivery, Pump, StartError,
    start::{start, start_pump},
};
use crate::{
    Address, Backend, CriticalError, DeferralFormat, DeferralHeaders, Dispatcher, Observer, Receiver,
    Settings, TracingObserver, TransactionMode,
    observer::{CriticalErrorAction, Reporter},
    pump::Source,
};

/// What delayed delivery is made of. Made by [`DelayedDelivery::builder`] or [`Pump::builder`].
#[must_use = "nothing is delivered before `start`"]
pub struct Builder {
    pub(super) endpoint: String,
    pub(super) backend: Option<Arc<dyn Backend>>,
    pub(super) dispatcher: Option<Arc<dyn Dispatcher>>,
    pub(super) error_dispatcher: Option<Arc<dyn Dispatcher>>,
    pub(super) error_queue: Option<Address>,
    pub(super) mode: Option<TransactionMode>,
    pub(super) settings: Settings,
    pub(super) set_up: bool,
    pub(super) source: Option<Source>,
    observers: Vec<Arc<dyn Observer>>,
    critical: Option<CriticalErrorAction>,
}

impl Builder {
    pub(super) fn new(endpoint: String) -> Self {
        Self {
            endpoint,
            backend: None,
            dispatcher: None,
            error_dispatcher: None,
            error_queue: None,
            mode: None,
            settings: Settings::default(),
            set_up: true,
            source: None,
            observers: vec![Arc::new(TracingObserver)],
            critical: None,
        }
    }

    /// Where messages wait.
    pub fn store(mut self, backend: impl Backend) -> Self {
        self.backend = Some(Arc::new(backend));
        self
    }

    /// How they reach their destinations.
    pub fn dispatcher(mut self, dispatcher: impl Dispatcher) -> Self {
        self.dispatcher = Some(Arc::new(dispatcher));
        self
    }

    /// Takes messages to be delayed from a queue as well: the one named
    /// [`<endpoint>.timeouts`](crate::EndpointName::timeouts_queue), to which programs hand them with
    /// [`DelayedMessage::through`](crate::DelayedMessage::through).
    ///
    /// ```
    /// # use std::{num::NonZeroUsize, time::Duration};
    /// use postdate_core::*;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let memory = Memory::builder().clock(TokioClock::starting_at("2026-12-24T18:00:00Z".parse()?)).build();
    /// let queues = memory.queues();
    /// let (billing, timeouts) = (Address::new("billing")?, EndpointName::new("orders")?.timeouts_queue());
    /// # queues.create(&billing).await?;
    /// queues.create(&timeouts).await?;
    /// let delivery = DelayedDelivery::builder("orders")
    ///     .store(memory)
    ///     .dispatcher(queues.dispatcher())
    ///     .pump(queues.receiver(&timeouts).await?)
    ///     .start()
    ///     .await?;
    ///
    /// // Anywhere, by anybody who can send to that queue:
    /// let reminder = Message::new("is invoice 42 paid?").to(billing.clone(), Due::after(Duration::from_secs(60)));
    /// for sent in queues.dispatcher().dispatch(&[reminder.through(timeouts)], None).await {
    ///     sent?;
    /// }
    /// # let receiver = queues.receiver(&billing).await?;
    /// # assert_eq!(receiver.receive(NonZeroUsize::MIN).await?.messages[0].message.body, "is invoice 42 paid?");
    /// # delivery.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn pump(self, receiver: Arc<dyn Receiver>) -> Self {
        self.pump_in_format(receiver, DeferralHeaders)
    }

    /// The same for a queue whose messages say in another way than ours when they are due and where they go.
    pub fn pump_in_format(mut self, receiver: Arc<dyn Receiver>, format: impl DeferralFormat) -> Self {
        self.source = Some(Source { receiver, format: Arc::new(format) });
        self
    }

    /// The queue for messages that cannot be delivered. Default `error`.
    pub fn error_queue(mut self, queue: Address) -> Self {
        self.error_queue = Some(queue);
        self
    }

    /// How messages reach the error queue, if not as all others do.
    pub fn error_dispatcher(mut self, dispatcher: impl Dispatcher) -> Self {
        self.error_dispatcher = Some(Arc::new(dispatcher));
        self
    }

    /// Insists on a mode; starting fails where it cannot be kept. Default: exactly once
    /// ([`TransactionScope`](TransactionMode::TransactionScope)) where store and dispatchers prove that they
    /// share a transaction, else at least once.
    pub fn transaction_mode(mut self, mode: TransactionMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// All settings at once.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// [`Settings::number_of_retries`].
    pub fn number_of_retries(mut self, retries: u32) -> Self {
        self.settings.number_of_retries = retries;
        self
    }

    /// Does not set the store up, for programs without the right to make tables. Starting fails if nobody else
    /// has done it.
    pub fn without_set_up(mut self) -> Self {
        self.set_up = false;
        self
    }

    /// Tells `observer` what happens, beside the others.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// What to do when a breaker trips: called once per episode. Default: nothing but the log line; delivery
    /// goes on trying in any case.
    pub fn on_critical_error(mut self, action: impl Fn(&CriticalError) + Send + Sync + 'static) -> Self {
        self.critical = Some(Arc::new(action));
        self
    }

    /// Starts delivery.
    ///
    /// # Errors
    /// When something is missing, the store cannot be opened, or the mode cannot be kept. Then nothing runs.
    pub async fn start(mut self) -> Result<DelayedDelivery, StartError> {
        let reporter = self.reporter();
        start(self, reporter).await
    }

    /// Starts a [pump](Self::pump) alone, where another process delivers. Of the dispatchers only that to the error
    /// queue is used.
    ///
    /// # Errors
    /// When something is missing or the store cannot be opened. Then nothing runs.
    pub async fn start_pump(mut self) -> Result<Pump, StartError> {
        let reporter = self.reporter();
        start_pump(self, reporter).await
    }

    fn reporter(&mut self) -> Reporter {
        Reporter::new(std::mem::take(&mut self.observers), self.critical.take())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("endpoint", &self.endpoint)
            .field("backend", &self.backend)
            .field("dispatcher", &self.dispatcher)
            .field("mode", &self.mode)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
