//! Which destinations may be sent to.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{Breaker, breaker::Failed};
use crate::Address;

/// A gate that nobody asked to pass for so long is forgotten, so that names of dead destinations do not pile up.
const FORGET: Duration = Duration::from_secs(600);

/// Destinations in trouble, each with a gate and a breaker of its own. All others are free.
///
/// The gate is per destination and not per message: the messages of a dead destination stay where they are,
/// untouched, so that an outage costs one probe per pause and not one write per message.
#[derive(Debug)]
pub(crate) struct Gates {
    time_to_trigger: Duration,
    gates: BTreeMap<Address, Gate>,
}

#[derive(Debug)]
struct Gate {
    breaker: Breaker,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Nothing is sent until then; the first message after it is the probe.
    Shut { until: Instant },
    /// One message is on its way to find out.
    Probing,
    /// An answer has been outstanding for long; until it comes nothing more is fetched.
    Slow,
}

/// How many messages may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All.
    All,
    /// One, and the others if it gets through.
    Probe,
    /// None.
    Nothing,
}

/// What reaching a destination changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// Nothing.
    WasOpen,
    /// Its gate is open again.
    Now,
    /// Its gate is open again, and its breaker, which had tripped, is closed.
    AndBreakerClosed,
}

impl Gates {
    pub(crate) fn new(time_to_trigger: Duration) -> Self {
        Self { time_to_trigger, gates: BTreeMap::new() }
    }

    /// Destinations for which nothing should be fetched now.
    pub(crate) fn shut(&self, now: Instant) -> Vec<Address> {
        let shut = |gate: &Gate| !matches!(gate.state, State::Shut { until } if until <= now);
        self.gates.iter().filter(|(_, gate)| shut(gate)).map(|(to, _)| to.clone()).collect()
    }

    /// Forgets gates that nobody needs. Answers with those whose breaker had tripped.
    pub(crate) fn forget(&mut self, now: Instant) -> Vec<Address> {
        let unneeded = |gate: &Gate| matches!(gate.state, State::Shut { until } if now.saturating_duration_since(until) > FORGET);
        let forgotten = self.gates.extract_if(.., |_, gate| unneeded(gate));
        let tripped = |(to, mut gate): (Address, Gate)| gate.breaker.success().then_some(to);
        forgotten.filter_map(tripped).collect()
    }

    /// When the first of the gates that are shut now may be probed.
    pub(crate) fn next_probe(&self, now: Instant) -> Option<Instant> {
        let until = |gate: &Gate| match gate.state {
            State::Shut { until } if until > now => Some(until),
            _ => None,
        };
        self.gates.values().filter_map(until).min()
    }

    /// Messages for `to` are at hand.
    pub(crate) fn admit(&mut self, to: &Address, now: Instant) -> Admission {
        let Some(gate) = self.gates.get_mut(to) else { return Admission::All };
        match gate.state {
            State::Shut { until } if until <= now => {
                gate.state = State::Probing;
                Admission::Probe
            }
            _ => Admission::Nothing,
        }
    }

    /// `to` took a message or refused one: it is there.
    pub(crate) fn reached(&mut self, to: &Address) -> Opened {
        match self.gates.remove(to) {
            None => Opened::WasOpen,
            Some(mut gate) => {
                if gate.breaker.success() {
                    Opened::AndBreakerClosed
                } else {
                    Opened::Now
                }
            }
        }
    }

    /// `to` could not be reached.
    pub(crate) fn unavailable(&mut self, to: &Address, now: Instant) -> Failed {
        let gate = self
            .gates
            .entry(to.clone())
            .or_insert_with(|| Gate { breaker: Breaker::new(self.time_to_trigger), state: State::Probing });
        let failed = gate.breaker.failure(now);
        gate.state = State::Shut { until: now + failed.pause };
        failed
    }

    /// `to` has not answered for long.
    pub(crate) fn slow(&mut self, to: &Address) {
        let gate = self
            .gates
            .entry(to.clone())
            .or_insert_with(|| Gate { breaker: Breaker::new(self.time_to_trigger), state: State::Slow });
        gate.state = State::Slow;
    }

    /// Nobody knows what became of anything that was on its way: the next message to each is the probe.
    pub(crate) fn all_undecided(&mut self, now: Instant) {
        for gate in self.gates.values_mut().filter(|gate| !matches!(gate.state, State::Shut { .. })) {
            gate.state = State::Shut { until: now };
        }
    }

    /// What was on its way to `to` was given up without finding out anything; the next message is the probe.
    pub(crate) fn undecided(&mut self, to: &Address, now: Instant) {
        if let Some(gate) = self.gates.get_mut(to) {
            gate.state = State::Shut { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn gates() -> (Gates, Address, Instant) {
        (Gates::new(30 * SECOND), Address::new("billing").unwrap(), Instant::now())
    }

    #[test]
    fn a_healthy_destination_has_no_gate() {
        let (mut gates, to, now) = gates();
        assert_eq!(gates.admit(&to, now), Admission::All);
        assert_eq!(gates.reached(&to), Opened::WasOpen);
        assert!(gates.shut(now).is_empty());
        assert_eq!(gates.next_probe(now), None);
    }

    #[test]
    fn an_unavailable_destination_is_shut_then_probed_by_one_message() {
        let (mut gates, to, now) = gates();
        let pause = gates.unavailable(&to, now).pause;
        assert_eq!(&*gates.shut(now), slice::from_ref(&to));
        assert_eq!(gates.admit(&to, now), Admission::Nothing);
        assert_eq!(gates.next_probe(now), Some(now + pause));

        assert!(gates.shut(now + pause).is_empty(), "it may be fetched for again");
        assert_eq!(gates.admit(&to, now + pause), Admission::Probe);
        assert_eq!(gates.admit(&to, now + pause), Admission::Nothing, "one probe at a time");
        assert_eq!(&*gates.shut(now + pause), slice::from_ref(&to));

        assert_eq!(gates.reached(&to), Opened::Now);
        assert_eq!(gates.admit(&to, now + pause), Admission::All);
    }

    #[test]
    fn the_breaker_of_a_destination_trips_once_and_leaves_others_alone() {
        let (mut gates, to, now) = gates();
        let other = Address::new("shipping").unwrap();
        let trips = (0..60).filter(|second| gates.unavailable(&to, now + *second * SECOND).tripped).count();
        assert_eq!(trips, 1);
        assert_eq!(gates.admit(&other, now), Admission::All);
        assert_eq!(gates.reached(&to), Opened::AndBreakerClosed);
    }

    #[test]
    fn a_slow_destination_is_shut_until_it_answers() {
        let (mut gates, to, now) = gates();
        gates.slow(&to);
        assert_eq!(&*gates.shut(now + 3_600 * SECOND), slice::from_ref(&to));
        assert_eq!(gates.next_probe(now), None);
        gates.undecided(&to, now);
        assert_eq!(gates.admit(&to, now), Admission::Probe);
        gates.all_undecided(now);
        assert_eq!(gates.admit(&to, now), Admission::Probe, "whoever probed is gone");
    }

    #[test]
    fn a_gate_that_nobody_needs_is_forgotten() {
        let (mut gates, to, now) = gates();
        gates.unavailable(&to, now);
        assert!(gates.forget(now + 700 * SECOND).is_empty(), "its breaker had not tripped");
        assert_eq!(gates.admit(&to, now + 700 * SECOND), Admission::All);
    }

    #[test]
    fn a_breaker_that_had_tripped_is_not_forgotten_in_silence() {
        let (mut gates, to, now) = gates();
        for second in 0..60 {
            gates.unavailable(&to, now + second * SECOND);
        }
        assert_eq!(gates.forget(now + 700 * SECOND), slice::from_ref(&to));
        assert_eq!(gates.reached(&to), Opened::WasOpen);
    }
}
