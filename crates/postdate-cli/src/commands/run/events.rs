//! What `run` tells while it runs.

use postdate::{Address, BreakerName, CriticalError, Event, Observer, TransactionMode};
use serde::{Serialize, Serializer};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    exit::Failure,
    output::{Format, Output},
    session::Session,
};

/// Something that happened, for machines: one object a line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Happened {
    Started {
        store: String,
        transport: String,
        endpoint: String,
        mode: String,
        error_queue: String,
    },
    StandingBy,
    TookOver,
    BreakerTripped {
        #[serde(serialize_with = "name")]
        breaker: BreakerName,
        error: String,
    },
    BreakerClosed {
        #[serde(serialize_with = "name")]
        breaker: BreakerName,
    },
    Stopped {
        cut_off: usize,
    },
}

impl Happened {
    pub(super) fn started(session: &Session, mode: TransactionMode, error_queue: &Address) -> Self {
        Self::Started {
            store: session.url.to_string(),
            transport: session.transport.url.to_string(),
            endpoint: session.endpoint.to_string(),
            mode: mode.to_string(),
            error_queue: error_queue.to_string(),
        }
    }
}

/// Picks from the events of the delivery what an operator must know, and passes it on.
#[derive(Debug)]
pub(super) struct Events(UnboundedSender<Happened>);

impl Events {
    pub(super) fn new(sender: UnboundedSender<Happened>) -> Self {
        Self(sender)
    }
}

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        let happened = match *event {
            Event::BreakerTripped { breaker, error } => {
                Happened::BreakerTripped { breaker: breaker.clone(), error: error.to_owned() }
            }
            Event::BreakerClosed { breaker } => Happened::BreakerClosed { breaker: breaker.clone() },
            _ => return,
        };
        // While stopping nobody listens any more.
        let _ = self.0.send(happened);
    }
}

/// Tells machines everything, and people what they have not just been told.
pub(super) fn tell(happened: &Happened, output: &Output) -> Result<(), Failure> {
    if output.format() == Format::Json {
        output.json(happened)?;
    }
    match happened {
        Happened::Started { .. } | Happened::Stopped { .. } => {}
        Happened::StandingBy => {
            output.note("another process delivers for this endpoint; standing by until it ends")
        }
        Happened::TookOver => output.note("the other process has ended; delivering now"),
        Happened::BreakerTripped { breaker, error } => {
            let critical = CriticalError { breaker: breaker.clone(), error: error.clone() };
            output.alarm(&format!("critical: {critical}; trying on"));
        }
        Happened::BreakerClosed { breaker } => output.note(&format!("recovered: {breaker}")),
    }
    Ok(())
}

fn name<S: Serializer>(breaker: &BreakerName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(breaker)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn breakers_are_passed_on_under_their_names_and_the_rest_is_not() {
        let (sender, mut receiver) = unbounded_channel();
        let events = Events::new(sender);
        let breaker = BreakerName::Dispatch(Address::new("billing").unwrap());
        events.observe(&Event::Stopped { cut_off: 0 });
        events.observe(&Event::BreakerTripped { breaker: &breaker, error: "refused" });
        events.observe(&Event::BreakerClosed { breaker: &breaker });
        let passed: Vec<_> = std::iter::from_fn(|| receiver.try_recv().ok())
            .map(|happened| serde_json::to_value(happened).unwrap())
            .collect();
        assert_eq!(
            passed,
            [
                json!({"event": "breaker_tripped", "breaker": "dispatch to billing", "error": "refused"}),
                json!({"event": "breaker_closed", "breaker": "dispatch to billing"}),
            ]
        );
    }
}
