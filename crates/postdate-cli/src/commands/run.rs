//! `run`: deliver what falls due, until told to stop.

mod events;
mod standing;

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use postdate::{Address, CatchUp, DelayedDelivery, Settings, StartError, TransactionMode};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use crate::{
    cli::{Options, RunArgs},
    exit::{Exit, Failure},
    output::{Output, time::rough},
    session::Session,
    signals::Signals,
};
use events::{Events, Happened};
use standing::Standing;

/// How often a process that stands by asks whether it is its turn.
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &RunArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let session = Session::prepare(options).await?;
    let error_queue = &args.errors.name;
    session.transport.queues()?.create(error_queue).await?;
    let settings = settings(args);
    let drain_time = settings.drain_time;
    let (sender, mut events) = mpsc::unbounded_channel();
    let delivery = start(&session, args, settings, Events::new(sender)).await?;

    welcome(&session, guarantee(args, &session, delivery.mode()), error_queue, output);
    events::tell(&Happened::started(&session, delivery.mode(), error_queue), output)?;
    let mut standing = Standing::new(&session, delivery.mode());
    let mut turn = interval(ASK_AGAIN);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.next() => break,
            Some(happened) = events.recv() => {
                standing.breakers(&delivery.tripped_breakers());
                events::tell(&happened, output)?;
            }
            _ = turn.tick(), if !standing.delivers() => {
                if let Some(happened) = standing.ask().await {
                    events::tell(&happened, output)?;
                }
            }
        }
    }
    let outcome = stop(delivery, drain_time, &mut signals, output).await;
    standing.stopped();
    outcome
}

async fn start(
    session: &Session,
    args: &RunArgs,
    settings: Settings,
    events: Events,
) -> Result<DelayedDelivery, Failure> {
    let mut builder = DelayedDelivery::builder(session.endpoint.as_str())
        .store(session.backend.clone())
        .dispatcher(session.transport.queues()?.dispatcher())
        .error_queue(args.errors.name.clone())
        .observer(Arc::new(events))
        .settings(settings);
    if let Some(mode) = args.mode {
        builder = builder.transaction_mode(mode.into());
    }
    builder.start().await.map_err(|error| match error {
        StartError::Store(error) => error.into(),
        other => Failure::usage(other.to_string()),
    })
}

fn settings(args: &RunArgs) -> Settings {
    let mut settings = Settings::default();
    settings.number_of_retries = args.retries;
    settings.batch_size = args.batch_size.unwrap_or(settings.batch_size);
    settings.concurrency = args.concurrency.unwrap_or(settings.concurrency);
    settings.drain_time = args.drain_time.unwrap_or(settings.drain_time);
    let mut catch_up = CatchUp::default();
    catch_up.rate = args.catch_up_rate;
    catch_up.maximum_lateness = args.max_lateness;
    settings.catch_up = catch_up;
    settings
}

/// What is promised, and why it is not more.
fn guarantee(args: &RunArgs, session: &Session, mode: TransactionMode) -> String {
    const SCOPE: TransactionMode = TransactionMode::TransactionScope;
    if mode == SCOPE {
        return format!("exactly once ({mode}): store and queues have proved to share transactions");
    }
    let might_have_been = args.mode.is_none() && session.backend.capabilities().supports(SCOPE);
    let why = if might_have_been { ": the queues are not in the store's database" } else { "" };
    format!("at least once ({mode}){why}")
}

/// Says what runs and what to try next.
fn welcome(session: &Session, guarantee: String, error_queue: &Address, output: &Output) {
    let transport = (session.transport.url != session.url).then_some(&session.transport.url);
    let transport = transport.map(|url| format!("  queues in    {url}"));
    let begin = [
        format!("postdate {} delivers what falls due", env!("CARGO_PKG_VERSION")),
        format!("  store        {}", session.url),
    ];
    let rest = [
        format!("  endpoint     {}", session.endpoint),
        format!("  guarantee    {guarantee}"),
        format!("  error queue  {error_queue}"),
        "In another terminal:".to_owned(),
        "  postdate receive billing --follow".to_owned(),
        r#"  postdate send billing '{"invoice":42}' --in 10s"#.to_owned(),
        "  postdate status".to_owned(),
        "Ctrl-C stops.".to_owned(),
    ];
    begin.into_iter().chain(transport).chain(rest).for_each(|line| output.note(&line));
}

async fn stop(
    delivery: DelayedDelivery,
    drain_time: Duration,
    signals: &mut Signals,
    output: &Output,
) -> Result<Exit, Failure> {
    let drain_time = rough(SignedDuration::try_from(drain_time).unwrap_or(SignedDuration::MAX));
    output.note(&format!("stopping; what is on its way has {drain_time} to arrive, once more stops at once"));
    let cut_off = tokio::select! {
        stopped = delivery.stop() => stopped.cut_off,
        () = signals.next() => {
            let message = "stopped at once; what was on its way is delivered at the next start, perhaps twice";
            return Err(Failure::new(Exit::Failure, message));
        }
    };
    output.note(&match cut_off {
        0 => "stopped; nothing was on its way any more".to_owned(),
        batches => format!("stopped; {batches} batches were cut off and are delivered at the next start"),
    });
    events::tell(&Happened::Stopped { cut_off }, output)?;
    Ok(Exit::Ok)
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use async_trait::async_trait;
    use postdate::{
        DispatchError, Dispatcher, Due, Enlistment, Memory, Message, OutgoingMessage, StoreError,
    };
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;
    use crate::output::{Format, Words};

    /// Says that it was called, and never answers.
    #[derive(Debug)]
    struct Stuck(UnboundedSender<()>);

    #[async_trait]
    impl Dispatcher for Stuck {
        async fn joins(&self, _: Enlistment<'_>) -> Result<bool, StoreError> {
            Ok(false)
        }

        async fn dispatch(
            &self,
            _: &[OutgoingMessage],
            _: Option<Enlistment<'_>>,
        ) -> Vec<Result<(), DispatchError>> {
            let _ = self.0.send(());
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn a_second_signal_ends_the_wait_for_what_is_on_its_way() {
        let mut signals = Signals::listen().unwrap();
        let (sender, mut called) = unbounded_channel();
        let delivery = DelayedDelivery::builder("orders")
            .store(Memory::new())
            .dispatcher(Stuck(sender))
            .start()
            .await
            .unwrap();
        delivery.send("billing", Message::new("x"), Due::NOW).await.unwrap();
        called.recv().await.unwrap();

        let kill = Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status();
        assert!(kill.unwrap().success());
        let output = Output::new(Format::Human, Words::Quiet);
        let outcome = stop(delivery, Duration::from_secs(3_600), &mut signals, &output).await;
        assert!(matches!(outcome, Err(Failure::Said(Exit::Failure, _))), "{outcome:?}");
    }
}
