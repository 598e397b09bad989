//! Histories to try: what is called in which order, made by chance so that they can be made shorter.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use jiff::Timestamp;
use postdate_core::{Address, DelayedMessage, Due, Failure, Filter, Message, MessageId};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::search::Steps;
use crate::make::{HOUR, address, id, long_ago};

/// What happens to an endpoint, or to two. Claims are meant by numbers that are cut to those that there are, so that a
/// step has a meaning whatever is taken away before it.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// Which of the store's modes.
    pub(super) mode: usize,
    pub(super) moments: Vec<Moment>,
}

/// Steps that are taken at the same time.
pub(super) type Moment = Vec<Step>;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Calls the store at a seat.
    At(usize, Request),
    /// Calls a claim.
    With(usize, Request),
    Drop(usize),
    Reopen(usize),
    LetLeasesEnd {
        keep: Option<usize>,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Request {
    Store(Vec<DelayedMessage>),
    Fetch { limit: usize, except: Vec<Address> },
    NextDue { except: Vec<Address> },
    Look(MessageId),
    List { filter: Filter, page: usize },
    Count,
    Cancel(Vec<MessageId>),
    Reschedule(MessageId, Due),
    Remove(Vec<MessageId>),
    Fail(Vec<Failure>),
    Release(Vec<MessageId>),
    Renew,
    Commit,
}

/// What may be in a history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) seats: usize,
    /// At most so many moments.
    pub(super) moments: usize,
    /// At most so many steps at the same time.
    pub(super) together: usize,
    pub(super) handles: Handles,
}

/// What becomes of handles on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handles {
    StayOpen,
    /// They are closed and opened again now and then.
    Change,
}

/// Few, so that the same one is meant often, and such that a careless store confuses.
const IDS: [&str; 5] = ["m0", "m1", "M0", "m", "n'%_"];
const DESTINATIONS: [&str; 3] = ["billing", "Billing", "audit"];

pub(super) fn histories(shape: Shape) -> impl Strategy<Value = History> {
    let moments = vec(moment(shape), 1..=shape.moments);
    (0..4_usize, stock(), moments).prop_map(|(mode, stock, moments)| History {
        mode,
        moments: stock.into_iter().chain(moments).collect(),
    })
}

/// Histories in which all leases end once.
pub(super) fn histories_with_a_pause(shape: Shape) -> impl Strategy<Value = History> {
    let half = || vec(moment(shape), 1..=shape.moments / 2);
    let parts = (0..4_usize, stock(), half(), option::of(0..4_usize), half());
    parts.prop_map(|(mode, stock, before, keep, after)| {
        let pause = vec![Step::LetLeasesEnd { keep }];
        let moments = stock.into_iter().chain(before).chain([pause]).chain(after);
        History { mode, moments: moments.collect() }
    })
}

/// What is stored at first, or nothing.
fn stock() -> impl Strategy<Value = Option<Moment>> {
    option::weighted(0.8, vec(message(), 1..=4).prop_map(|all| vec![Step::At(0, Request::Store(all))]))
}

fn moment(shape: Shape) -> BoxedStrategy<Moment> {
    let alone = step(shape).prop_map(|step| vec![step]);
    if shape.together < 2 {
        return alone.boxed();
    }
    prop_oneof![alone, vec(overlapping(shape.seats), 2..=shape.together)].boxed()
}

fn step(shape: Shape) -> BoxedStrategy<Step> {
    let seat = seat(shape.seats);
    let looking = prop_oneof![
        3 => an_id().prop_map(Request::Look),
        3 => (filter(), 1..4_usize).prop_map(|(filter, page)| Request::List { filter, page }),
        2 => Just(Request::Count),
        2 => except().prop_map(|except| Request::NextDue { except }),
    ];
    let steps = prop_oneof![
        24 => overlapping(shape.seats),
        10 => (seat.clone(), looking).prop_map(|(seat, request)| Step::At(seat, request)),
        2 => (0..4_usize).prop_map(|claim| Step::With(claim, Request::Renew)),
        2 => (0..4_usize).prop_map(Step::Drop),
    ];
    if shape.handles == Handles::Change {
        return prop_oneof![38 => steps, 1 => seat.prop_map(Step::Reopen)].boxed();
    }
    steps.boxed()
}

/// Steps that may be taken at the same time as others.
fn overlapping(seats: usize) -> impl Strategy<Value = Step> {
    let ids = || vec(an_id(), 1..=5);
    let at_a_seat = prop_oneof![
        6 => vec(message(), 1..=3).prop_map(Request::Store),
        6 => (1..=4_usize, except()).prop_map(|(limit, except)| Request::Fetch { limit, except }),
        2 => ids().prop_map(Request::Cancel),
        2 => (an_id(), due()).prop_map(|(id, due)| Request::Reschedule(id, due)),
    ];
    let with_a_claim = prop_oneof![
        3 => ids().prop_map(Request::Remove),
        3 => vec(failure(), 1..=5).prop_map(Request::Fail),
        2 => ids().prop_map(Request::Release),
        1 => Just(Request::Commit),
    ];
    prop_oneof![
        16 => (seat(seats), at_a_seat).prop_map(|(seat, request)| Step::At(seat, request)),
        9 => (0..4_usize, with_a_claim).prop_map(|(claim, request)| Step::With(claim, request)),
    ]
}

/// Mostly the first: what happens in one place is more telling.
fn seat(seats: usize) -> impl Strategy<Value = usize> + Clone {
    prop_oneof![Just(0), 0..seats]
}

/// Mostly the same for the same id, and due: what conflicts is not stored, and what is not due not fetched.
fn message() -> impl Strategy<Value = DelayedMessage> {
    let content = prop_oneof![9 => Just((0, "")), 1 => (0..3_usize, select(vec!["", "other"]))];
    let due = prop_oneof![4 => Just(None), 1 => due().prop_map(Some)];
    (0..IDS.len(), content, due).prop_map(|(name, (other, body), due)| {
        let due = due.unwrap_or_else(|| long_ago(name % 3));
        let to = address(DESTINATIONS[(name + other) % DESTINATIONS.len()]);
        Message::new(body).id(id(IDS[name])).header("about", IDS[name]).to(to, due)
    })
}

fn an_id() -> impl Strategy<Value = MessageId> {
    (0..IDS.len()).prop_map(|name| id(IDS[name]))
}

fn destination() -> impl Strategy<Value = Address> {
    (0..DESTINATIONS.len()).prop_map(|name| address(DESTINATIONS[name]))
}

fn except() -> impl Strategy<Value = Vec<Address>> {
    prop_oneof![5 => Just(Vec::new()), 1 => vec(destination(), 1..=2)]
}

/// Past or far away: no history depends on how long it takes.
fn due() -> impl Strategy<Value = Due> {
    const FAR_AHEAD: Timestamp = Timestamp::constant(32_503_680_000, 0);
    prop_oneof![
        8 => (0..3_usize).prop_map(long_ago),
        2 => Just(Due::NOW),
        2 => (1..3_u32).prop_map(|hours| Due::after(hours * HOUR)),
        1 => Just(Due::at(FAR_AHEAD)),
        1 => Just(Due::after(Duration::MAX)),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    (an_id(), select(vec![Duration::ZERO, Duration::ZERO, HOUR])).prop_map(|(id, retry_after)| Failure {
        error: format!("no answer for {id}"),
        id,
        retry_after,
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let instant = || {
        option::weighted(0.2, (0..3_usize).prop_map(long_ago))
            .prop_map(|due| due.and_then(|due| due.resolve(Timestamp::UNIX_EPOCH)))
    };
    let destination = option::weighted(0.3, destination());
    let prefix = option::weighted(0.3, select(IDS.to_vec()).prop_map(str::to_owned));
    (destination, prefix, instant(), instant(), 0..3_u32).prop_map(
        |(destination, id_prefix, due_before, due_from, failures)| Filter {
            destination,
            id_prefix,
            due_before,
            due_from,
            min_failures: failures.saturating_sub(1),
        },
    )
}

impl Steps for History {
    fn first(&self, steps: usize) -> Self {
        Self { mode: self.mode, moments: self.moments.iter().take(steps).cloned().collect() }
    }
}

impl Display for History {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "mode {}", self.mode)?;
        for (i, moment) in self.moments.iter().enumerate() {
            for (j, step) in moment.iter().enumerate() {
                let number = if j == 0 { format!("{}.", i + 1) } else { "&".to_owned() };
                write!(f, "\n{number:>4} {step}")?;
            }
        }
        Ok(())
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(seat, request) => write!(f, "at seat {seat}: {request}"),
            Self::With(claim, request) => write!(f, "with claim {claim}: {request}"),
            Self::Drop(claim) => write!(f, "drop claim {claim}"),
            Self::Reopen(seat) => write!(f, "reopen seat {seat}"),
            Self::LetLeasesEnd { keep: None } => f.write_str("let all leases end"),
            Self::LetLeasesEnd { keep: Some(claim) } => write!(f, "let leases end, renew claim {claim}"),
        }
    }
}

impl Display for Request {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(messages) => {
                f.write_str("store")?;
                messages.iter().try_for_each(|DelayedMessage { message, due }| {
                    let (id, to, bytes) = (&message.id, &message.destination, message.body.len());
                    write!(f, " [{id:?} to {to:?} of {bytes} bytes, {due:?}]")
                })
            }
            Self::Fetch { limit, except } => write!(f, "fetch {limit} but for {except:?}"),
            Self::NextDue { except } => write!(f, "ask for the next due time but for {except:?}"),
            Self::Look(id) => write!(f, "look at {id:?}"),
            Self::List { filter, page } => write!(f, "list by {page} {filter:?}"),
            Self::Count => f.write_str("count"),
            Self::Cancel(ids) => write!(f, "cancel {ids:?}"),
            Self::Reschedule(id, due) => write!(f, "reschedule {id:?}, {due:?}"),
            Self::Remove(ids) => write!(f, "remove {ids:?}"),
            Self::Fail(failures) => {
                f.write_str("fail")?;
                failures.iter().try_for_each(|failure| {
                    write!(f, " [{:?}, again after {:?}]", failure.id, failure.retry_after)
                })
            }
            Self::Release(ids) => write!(f, "release {ids:?}"),
            Self::Renew => f.write_str("renew"),
            Self::Commit => f.write_str("commit"),
        }
    }
}
