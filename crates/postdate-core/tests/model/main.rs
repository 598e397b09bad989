//! Every order in which dispatchers, operators and misfortune can come: claim, send, remove, count, move to the
//! error queue, cancel, crash, a lease that ends, an answer that is lost, an outage.
//!
//! What the simulation finds by chance is here looked at completely, for a world so small that it can be. The
//! wrong orders are found by their shortest way.

mod delivery;
mod explorer;

use delivery::{Action, Budget, Delivery, Dispatcher, Message, Order, RETRIES, Stage, State};
use explorer::Explored;

/// Something that is so or not, by its name.
type Named<T> = (&'static str, fn(&T) -> bool);

/// What must be true in every state.
const PROMISES: [Named<State>; 7] = [
    ("no loss", |state| (0..state.messages.len()).all(|message| state.is_safe(message))),
    ("order of effects", |state| state.all(|message| message.is_there || message.is_accounted_for())),
    ("fence", |state| !state.trespassed),
    ("duplicates have an excuse", |state| state.all(|message| message.copies() <= 1 + message.excuses)),
    ("cancelled means not sent", |state| {
        state.all(|message| !message.is_cancelled || message.copies() <= message.excuses)
    }),
    ("attempts are bounded", |state| state.all(|message| message.refused <= RETRIES + 1 + message.excuses)),
    ("an outage consumes no retries", |state| state.all(|message| message.failures <= message.refused)),
];

const ONE_OF_EACH: Budget = Budget { crashes: 1, late: 1, lost_answers: 1, outages: 1 };

/// Two dispatchers, a message that is refused and one that is not.
fn two_by_two(order: Order) -> Delivery {
    Delivery { order, dispatchers: 2, messages: 2, poison: 1, budget: ONE_OF_EACH }
}

/// Three dispatchers, and one message.
fn three_by_one(order: Order, poison: usize) -> Delivery {
    let budget = Budget { crashes: 1, late: 2, lost_answers: 1, outages: 1 };
    Delivery { order, dispatchers: 3, messages: 1, poison, budget }
}

impl State {
    fn all(&self, promise: impl Fn(&Message) -> bool) -> bool {
        self.messages.iter().all(promise)
    }

    /// The message is stored, has arrived or was cancelled, or is about to arrive.
    fn is_safe(&self, number: usize) -> bool {
        let message = &self.messages[number];
        let is_coming = |dispatcher: &Dispatcher| {
            let Dispatcher::Has { message, stage, .. } = dispatcher else { return false };
            *message == number && matches!(stage, Stage::RemovedUnsent | Stage::RemovedUnmoved)
        };
        message.is_there || message.is_accounted_for() || self.dispatchers.iter().any(is_coming)
    }

    fn is_drained(&self) -> bool {
        self.all(|message| !message.is_there)
            && self.dispatchers.iter().all(|dispatcher| *dispatcher == Dispatcher::Idle)
    }
}

impl Message {
    fn copies(&self) -> u8 {
        self.sent + self.moved
    }

    fn is_accounted_for(&self) -> bool {
        self.copies() > 0 || self.is_cancelled
    }
}

/// Explores a right order completely: every promise holds in so many states, and everything can be drained.
fn keeps_all(delivery: Delivery, states: usize) -> Explored<Delivery> {
    let explored = Explored::all(&delivery);
    for (name, promise) in PROMISES {
        assert_eq!(explored.way_to(|state| !promise(state)), None, "{name}: {delivery:?}");
    }
    assert_eq!(explored.way_to_no(State::is_drained), None, "cannot be drained: {delivery:?}");
    assert_eq!(explored.count(), states, "{delivery:?}");
    explored
}

/// The shortest way to break a promise.
fn breaks(delivery: Delivery, promise: &str) -> Vec<Action> {
    let (name, holds) =
        PROMISES.into_iter().find(|(name, _)| *name == promise).expect("the promise is in the list");
    Explored::all(&delivery).way_to(|state| !holds(state)).unwrap_or_else(|| panic!("{name} is kept"))
}

#[test]
fn send_then_remove_keeps_every_promise() {
    let explored = keeps_all(two_by_two(Order::SendThenRemove), 35_316);
    // Nothing is promised by a world in which these do not happen.
    let happens: [Named<Message>; 6] = [
        ("sent and removed", |message| message.sent == 1 && !message.is_there),
        ("sent twice", |message| message.sent == 2),
        ("moved to the error queue twice", |message| message.moved == 2),
        ("cancelled unsent", |message| message.is_cancelled && message.copies() == 0),
        ("cancelled though sent", |message| message.is_cancelled && message.copies() > 0),
        ("one attempt more, with an excuse", |message| message.refused > RETRIES + 1),
    ];
    for (what, happens) in happens {
        let seen = explored.way_to(|state| state.messages.iter().any(happens));
        assert!(seen.is_some(), "never: {what}");
    }
}

#[test]
fn three_dispatchers_keep_every_promise_for_one_message() {
    keeps_all(three_by_one(Order::SendThenRemove, 0), 9_282);
    keeps_all(three_by_one(Order::SendThenRemove, 1), 18_810);
}

#[test]
fn in_one_transaction_nothing_arrives_twice() {
    let explored = keeps_all(two_by_two(Order::OneTransaction), 6_432);
    assert_eq!(explored.way_to(|state| !state.all(|message| message.copies() <= 1)), None);
    assert_eq!(
        explored.way_to(|state| !state.all(|message| !(message.is_cancelled && message.copies() > 0))),
        None
    );
}

#[test]
fn removing_before_sending_loses_by_a_crash() {
    let delivery = three_by_one(Order::RemoveThenSend, 0);
    assert_eq!(breaks(delivery, "order of effects"), [Action::Fetch(0, 0), Action::Remove(0)]);
    assert_eq!(breaks(delivery, "no loss"), [Action::Fetch(0, 0), Action::Remove(0), Action::Crash(0)]);
}

#[test]
fn an_error_path_that_removes_first_loses_by_a_crash() {
    let delivery = three_by_one(Order::ErrorPathRemovesFirst, 1);
    let way = breaks(delivery, "no loss");
    use Action::{Count, Crash, Fetch, Remove, SendRefused};
    assert_eq!(
        way,
        [Fetch(0, 0), SendRefused(0), Count(0), Fetch(0, 0), SendRefused(0), Remove(0), Crash(0)]
    );
}

#[test]
fn without_a_fence_a_stale_claim_changes_something() {
    let way = breaks(three_by_one(Order::NoFence, 0), "fence");
    assert_eq!(way, [Action::Fetch(0, 0), Action::LeaseEnds(0), Action::GiveBack(0)]);
}

#[test]
fn cancelling_without_looking_lies() {
    let way = breaks(three_by_one(Order::CancelWithoutLooking, 0), "cancelled means not sent");
    assert_eq!(way, [Action::Fetch(0, 0), Action::Send(0), Action::Cancel(0)]);
}

#[test]
fn an_outage_that_counts_is_found() {
    let way = breaks(three_by_one(Order::OutageCounts, 0), "an outage consumes no retries");
    assert_eq!(way, [Action::Fetch(0, 0), Action::OutageBegins, Action::SendUnavailable(0)]);
}

#[test]
fn claims_that_never_end_are_never_drained() {
    let explored = Explored::all(&three_by_one(Order::ClaimsForEver, 0));
    let way = explored.way_to_no(State::is_drained);
    assert_eq!(way.unwrap(), [Action::Fetch(0, 0), Action::Crash(0)]);
}
