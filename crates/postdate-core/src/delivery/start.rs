//! Starting: everything is checked before the first message moves.

use std::{
    num::NonZeroUsize,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::FutureExt as _;
use tokio::sync::watch;

use super::{Builder, DelayedDelivery, Stopped};
use crate::{
    Address, Backend, BreakerName, DelayedMessageStore, DelayedMessageStoreExt as _, Dispatcher,
    EndpointName, Event, InvalidName, Settings, StoreError, TransactionMode,
    machine::Breaker,
    observer::Reporter,
    poller::{self, Context, Route},
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
    let store_breaker = Mutex::new(Breaker::new(settings.time_to_trigger_store_circuit_breaker));
    let route = Route { endpoint, mode, store: store.clone(), dispatcher, error_dispatcher, error_queue };
    let context = Arc::new(Context::new(route, settings, reporter.clone()));
    let (stop, stopping) = watch::channel(false);
    let (end, ended) = watch::channel(None);
    let poller = tokio::spawn(async move {
        end.send_replace(Some(run(context, stopping).await));
    });
    Ok(DelayedDelivery { store, mode, reporter, store_breaker, stop, ended, poller: poller.abort_handle() })
}

/// Runs the poller and tells how it ended, be it by a fault of its own.
async fn run(context: Arc<Context>, stopping: watch::Receiver<bool>) -> Stopped {
    let reporter = context.reporter.clone();
    let cut_off =
        AssertUnwindSafe(poller::run(context, stopping)).catch_unwind().await.unwrap_or_else(|_| {
            let error = "the poller panicked; nothing more is delivered until the next start";
            reporter.trip(BreakerName::Fetch, error.to_owned());
            0
        });
    reporter.report(Event::Stopped { cut_off });
    Stopped { cut_off }
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
