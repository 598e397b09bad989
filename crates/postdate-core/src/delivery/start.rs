//! Starting: everything is checked before the first message moves.

use std::{num::NonZeroUsize, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::sync::watch;

use super::{Builder, DelayedDelivery, Pump, Stopped, running::Running};
use crate::{
    Address, Backend, BreakerName, DelayedMessageStore, DelayedMessageStoreExt as _, Dispatcher,
    EndpointName, Event, InvalidName, Settings, StoreError, TransactionMode,
    engine::{Context, Route, Storing},
    observer::Reporter,
    poller,
    pump::{self, Source},
};

/// Delivery did not start. Nothing runs and nothing was claimed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The endpoint has no valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// There is no store.
    #[error("no store was given; call `store` on the builder")]
    NoStore,
    /// There is no dispatcher.
    #[error("no dispatcher was given; call `dispatcher` on the builder")]
    NoDispatcher,
    /// There is no queue to take messages from.
    #[error("no queue was given to take messages from; call `pump` on the builder")]
    NoReceiver,
    /// A setting makes no sense.
    #[error("setting {name}: {problem}")]
    Setting {
        /// Which.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The store cannot be set up or opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Exactly once was asked for and cannot be had.
    #[error("exactly once (TransactionScope) is not possible: {0}; use another transaction mode")]
    NotShared(String),
}

/// The longest wait that a lost wake-up may cost.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

pub(super) async fn start(builder: Builder, reporter: Reporter) -> Result<DelayedDelivery, StartError> {
    let endpoint = EndpointName::new(&builder.endpoint)?;
    let backend = builder.backend.ok_or(StartError::NoStore)?;
    let dispatcher = builder.dispatcher.ok_or(StartError::NoDispatcher)?;
    let error_dispatcher = builder.error_dispatcher.unwrap_or_else(|| dispatcher.clone());
    let error_queue = builder.error_queue.map_or_else(|| Address::new("error"), Ok)?;
    let settings = checked(builder.settings)?;
    if builder.source.is_some() {
        no_circle(&endpoint, &error_queue)?;
    }
    if builder.set_up {
        backend.set_up(&endpoint).await?;
    }
    let (store, mode) = open(
        &*backend,
        &endpoint,
        builder.mode,
        [("dispatcher", &*dispatcher), ("error dispatcher", &*error_dispatcher)],
    )
    .await?;

    reporter.report(Event::Started { endpoint: &endpoint, mode });
    let route = Route { endpoint, mode, store: store.clone(), dispatcher, error_dispatcher, error_queue };
    let context = Arc::new(Context::new(route, settings, reporter.clone()));
    let storing = storing(&context);
    let pump = builder.source.map(|source| {
        let (context, storing) = (context.clone(), storing.clone());
        Running::start(|stopping| pump(context, storing, source, stopping))
    });
    let poller = Running::start(|stopping| poll(context, stopping));
    Ok(DelayedDelivery { store, mode, reporter, storing, poller, pump })
}

pub(super) async fn start_pump(builder: Builder, reporter: Reporter) -> Result<Pump, StartError> {
    let endpoint = EndpointName::new(&builder.endpoint)?;
    let backend = builder.backend.ok_or(StartError::NoStore)?;
    let source = builder.source.ok_or(StartError::NoReceiver)?;
    let error_dispatcher = builder.error_dispatcher.or(builder.dispatcher).ok_or(StartError::NoDispatcher)?;
    let error_queue = builder.error_queue.map_or_else(|| Address::new("error"), Ok)?;
    let settings = checked(builder.settings)?;
    no_circle(&endpoint, &error_queue)?;
    if builder.set_up {
        backend.set_up(&endpoint).await?;
    }
    // Storing is the same in every mode.
    let mode = strongest_below_scope(&*backend);
    let store = backend.open(&endpoint, mode).await?;
    let dispatcher = error_dispatcher.clone();
    let route = Route { endpoint, mode, store, dispatcher, error_dispatcher, error_queue };
    let context = Arc::new(Context::new(route, settings, reporter.clone()));
    let storing = storing(&context);
    let running = Running::start(|stopping| pump(context, storing, source, stopping));
    Ok(Pump::new(running, reporter))
}

/// What a pump cannot store must not come back to it.
fn no_circle(endpoint: &EndpointName, error_queue: &Address) -> Result<(), StartError> {
    if endpoint.timeouts_queue() == *error_queue {
        let problem = "it is the queue that the pump takes messages from; choose another one";
        return Err(StartError::Setting { name: "error_queue", problem });
    }
    Ok(())
}

fn storing(context: &Context) -> Arc<Storing> {
    let time_to_trigger = context.settings.time_to_trigger_store_circuit_breaker;
    Arc::new(Storing::new(context.store.clone(), time_to_trigger, context.reporter.clone()))
}

/// Runs the poller and tells how it ended, be it by a fault of its own.
async fn poll(context: Arc<Context>, stopping: watch::Receiver<bool>) -> Stopped {
    let reporter = context.reporter.clone();
    let error = "the poller panicked; nothing more is delivered until the next start";
    let cut_off =
        unless_it_panics(poller::run(context, stopping), &reporter, BreakerName::Fetch, error).await;
    reporter.report(Event::Stopped { cut_off });
    Stopped { cut_off }
}

/// Runs the pump and tells how it ended, be it by a fault of its own.
async fn pump(
    context: Arc<Context>,
    storing: Arc<Storing>,
    source: Source,
    stopping: watch::Receiver<bool>,
) -> Stopped {
    let reporter = context.reporter.clone();
    reporter.report(Event::PumpStarted { endpoint: &context.endpoint });
    let error = "the pump panicked; nothing more is taken from the queue until the next start";
    let pump = pump::run(context, storing, source, stopping);
    let cut_off = unless_it_panics(pump, &reporter, BreakerName::Receive, error).await;
    reporter.report(Event::PumpStopped { cut_off });
    Stopped { cut_off }
}

async fn unless_it_panics(
    engine: impl Future<Output = usize>,
    reporter: &Reporter,
    breaker: BreakerName,
    error: &str,
) -> usize {
    AssertUnwindSafe(engine).catch_unwind().await.unwrap_or_else(|_| {
        reporter.trip(breaker, error.to_owned());
        0
    })
}

fn checked(settings: Settings) -> Result<Settings, StartError> {
    let refuse = |name, problem| Err(StartError::Setting { name, problem });
    if settings.longest_wait.is_zero() || settings.longest_wait > LONGEST_WAIT {
        return refuse("longest_wait", "must be between nothing and one hour");
    }
    if settings.send_time_limit.is_zero() {
        return refuse("send_time_limit", "must not be zero");
    }
    Ok(settings)
}

/// Opens the store in the mode asked for, or in the strongest that can be kept.
async fn open(
    backend: &dyn Backend,
    endpoint: &EndpointName,
    mode: Option<TransactionMode>,
    dispatchers: [(&str, &dyn Dispatcher); 2],
) -> Result<(Arc<dyn DelayedMessageStore>, TransactionMode), StartError> {
    const SCOPE: TransactionMode = TransactionMode::TransactionScope;
    if mode.is_none_or(|mode| mode == SCOPE) && (mode.is_some() || backend.capabilities().supports(SCOPE)) {
        let store = backend.open(endpoint, SCOPE).await?;
        match share_transaction(&*store, dispatchers).await? {
            Ok(()) => return Ok((store, SCOPE)),
            Err(reason) if mode.is_some() => return Err(StartError::NotShared(reason)),
            Err(reason) => tracing::debug!(reason, "delivery is at least once"),
        }
    }
    let mode = mode.unwrap_or_else(|| strongest_below_scope(backend));
    Ok((backend.open(endpoint, mode).await?, mode))
}

fn strongest_below_scope(backend: &dyn Backend) -> TransactionMode {
    let supported = |mode: &&TransactionMode| backend.capabilities().supports(**mode);
    let below = &TransactionMode::ALL[..3];
    below.iter().rev().find(supported).copied().unwrap_or(TransactionMode::None)
}

/// Whether every dispatcher proves, on a live claim, that it can join its transaction.
async fn share_transaction(
    store: &dyn DelayedMessageStore,
    dispatchers: [(&str, &dyn Dispatcher); 2],
) -> Result<Result<(), String>, StoreError> {
    let mut batch = store.fetch(NonZeroUsize::MIN).await?;
    for (name, dispatcher) in dispatchers {
        let Some(transaction) = batch.claim.enlist() else {
            return Ok(Err("the store offers no transaction to join".to_owned()));
        };
        if !dispatcher.joins(transaction).await? {
            return Ok(Err(format!("the {name} is not in the same database as the store")));
        }
    }
    Ok(Ok(()))
}
