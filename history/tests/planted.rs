//! The judge is tested too: short histories, each with one mistake or one excuse.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use jiff::{SignedDuration, Timestamp};
use postdate_history::{
    Cancellation, Counts, Event, Failure, Fetched, Guarantee, Judge, Knowledge, Outcome, Refusal,
    Rescheduling, Rules, Settled, Verdict, Wanted, Way, What,
};

const A: &str = "a";
const CONTENT: u64 = 42;
const LEASE: i64 = 30;

/// A history in the making. Times are seconds from its start.
struct History {
    rules: Rules,
    events: Vec<Event>,
}

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn due(second: i64) -> Wanted {
    Wanted::At(at(second))
}

fn history() -> History {
    let rules = Rules {
        guarantee: Guarantee::AtLeastOnce,
        knowledge: Knowledge::Effects,
        retries: 1,
        shortest_retry: seconds(1),
        resolution: SignedDuration::from_micros(1),
        maximum_lateness: None,
        converges_within: Some(seconds(60)),
    };
    History { rules, events: Vec::new() }
}

/// One message, due at second 10, is in the store.
fn stored() -> History {
    history().attempted(0, A, due(10)).then(0, stored_due(10)).then(0, acknowledged_due(10))
}

/// Process 1 holds it under claim 1.
fn held() -> History {
    stored().fetched(10, 1, 1, 0)
}

fn sent() -> History {
    held().of(1, 10, sending()).then(11, delivered())
}

fn stored_due(second: i64) -> What {
    What::Stored { id: A.into(), due: at(second) }
}

fn acknowledged_due(second: i64) -> What {
    What::Acknowledged { id: A.into(), due: at(second) }
}

fn sending() -> What {
    What::Sending { ids: vec![A.into()], way: Way::Destination }
}

fn delivered() -> What {
    What::Delivered { id: A.into(), content: CONTENT }
}

fn told(outcome: Outcome) -> What {
    What::Told { outcomes: vec![(A.into(), outcome)] }
}

fn removed(claim: u64, held: bool) -> What {
    What::Removed { claim, messages: vec![Settled { id: A.into(), held }] }
}

fn failed(claim: u64, from: i64, after: i64) -> What {
    let failure = Failure { id: A.into(), retry_after: seconds(after), held: true };
    What::Failed { claim, from: at(from), messages: vec![failure] }
}

fn refused() -> What {
    What::Refused { id: A.into(), why: Refusal::Rejected }
}

fn moved(attempts: u32, reason: &str) -> What {
    What::Moved { id: A.into(), content: Some(CONTENT), attempts, reason: reason.into() }
}

fn cancelled(answer: Cancellation) -> What {
    What::Cancelled { id: A.into(), answer }
}

fn audited(ids: &[&str]) -> What {
    What::Audited { ids: ids.iter().map(|id| (*id).to_owned()).collect() }
}

impl History {
    fn then(mut self, second: i64, what: What) -> Self {
        self.events.push(Event::outside(at(second), what));
        self
    }

    fn of(mut self, process: u32, second: i64, what: What) -> Self {
        self.events.push(Event::of(process, at(second), what));
        self
    }

    fn attempted(self, second: i64, id: &str, due: Wanted) -> Self {
        let patience = Some(seconds(20));
        self.then(second, What::Attempted { id: id.into(), content: CONTENT, due, patience })
    }

    /// With a lease.
    fn fetched(self, second: i64, process: u32, claim: u64, failures: u32) -> Self {
        let messages = vec![Fetched { id: A.into(), due: at(10), failures }];
        self.of(process, second, What::Fetched { claim, until: Some(at(second + LEASE)), messages })
    }

    /// Until its process ends.
    fn taken(self, second: i64, process: u32, claim: u64) -> Self {
        let messages = vec![Fetched { id: A.into(), due: at(10), failures: 0 }];
        self.of(process, second, What::Fetched { claim, until: None, messages })
    }

    fn by(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(&mut self.rules);
        self
    }

    fn exactly_once(self) -> Self {
        self.by(|rules| rules.guarantee = Guarantee::ExactlyOnce)
    }

    fn of_answers(self) -> Self {
        self.by(|rules| rules.knowledge = Knowledge::Answers)
    }

    fn verdict(&self) -> Verdict {
        let mut judge = Judge::new(self.rules.clone());
        self.events.iter().for_each(|event| judge.take(event));
        judge.verdict()
    }

    /// The last event is what breaks the promise, and nothing else is broken.
    #[track_caller]
    fn breaks(self, promise: &str) {
        let mut judge = Judge::new(self.rules.clone());
        let (last, before) = self.events.split_last().unwrap();
        before.iter().for_each(|event| judge.take(event));
        assert_eq!(judge.violations(), [], "before the last event");
        judge.take(last);
        let found: Vec<_> = judge.violations().iter().map(|violation| violation.promise).collect();
        assert_eq!(found, [promise], "{:?}", judge.violations());
    }

    #[track_caller]
    fn passes(self) -> Counts {
        let verdict = self.verdict();
        assert!(verdict.is_clean(), "{verdict}");
        verdict.counts
    }
}

#[test]
fn a_plain_delivery_is_clean_and_counted() {
    let history = sent().of(1, 11, told(Outcome::Delivered)).of(1, 12, removed(1, true));
    let counts = history.of(1, 12, What::Committed { claim: 1 }).then(13, audited(&[])).passes();
    let expected = Counts { attempted: 1, acknowledged: 1, delivered: 1, events: 10, ..Counts::default() };
    assert_eq!(counts, expected);
}

#[test]
fn s1_an_acknowledgement_before_the_commit() {
    history().attempted(0, A, due(10)).then(0, acknowledged_due(10)).breaks("S1");
}

#[test]
fn s1_a_loss() {
    let lost = stored().then(5, audited(&[])).verdict();
    assert!(lost.violations.iter().all(|violation| violation.promise == "S1"), "{lost}");
    let lost = stored().of_answers().taken(10, 1, 1).of(1, 11, What::Died).then(12, audited(&[]));
    assert_eq!(lost.verdict().counts.lost, 1);
    lost.breaks("S1");
}

#[test]
fn s2_an_invention() {
    let unexpected = history().then(0, delivered());
    assert_eq!(unexpected.verdict().counts.unexpected, 1);
    unexpected.breaks("S2");
    held().then(11, What::Delivered { id: A.into(), content: 43 }).breaks("S2");
    stored().attempted(1, A, due(3)).breaks("S2");
}

#[test]
fn s2_what_arrives_unacknowledged_is_recovered() {
    let history = history().attempted(0, A, due(10)).then(0, stored_due(10)).fetched(10, 1, 1, 0);
    assert_eq!(history.then(11, delivered()).passes().recovered, 1);
}

#[test]
fn s3_early() {
    stored().fetched(9, 1, 1, 0).breaks("S3");
    history().attempted(0, A, due(10)).then(0, stored_due(9)).breaks("S3");
    let after = Wanted::After(seconds(10));
    history().attempted(0, A, after).then(3, stored_due(13)).passes();
    history().attempted(0, A, after).then(3, stored_due(12)).breaks("S3");
    held().then(10, refused()).of(1, 10, failed(1, 10, 5)).fetched(14, 1, 2, 1).breaks("S3");
}

#[test]
fn s3_a_due_time_is_rounded_up_and_no_further() {
    let coarse = |due: Timestamp| {
        let history = history().by(|rules| rules.resolution = seconds(4)).attempted(0, A, Wanted::At(at(9)));
        history.then(0, What::Stored { id: A.into(), due })
    };
    coarse(at(12)).passes();
    coarse(at(16)).breaks("S3");
}

#[test]
fn s4_two_holders() {
    held().fetched(39, 2, 2, 0).breaks("S4");
    held().of(1, 11, What::Disturbed).fetched(40, 2, 2, 0).passes();
    stored().taken(10, 1, 1).taken(1_000, 2, 2).breaks("S4");
}

#[test]
fn s5_no_fence() {
    let stale = || held().of(1, 11, What::Disturbed).fetched(41, 2, 2, 0).then(42, delivered());
    stale().of(1, 43, removed(1, true)).breaks("S5");
    stale().of(1, 43, removed(1, false)).passes();
    stale().of(2, 43, removed(2, false)).breaks("S5");
    let late = held().of(1, 11, What::Disturbed);
    late.of(1, 41, What::Renewed { claim: 1, until: at(71) }).breaks("S5");
    stored().fetched(10, 1, 1, 3).breaks("S5");
}

#[test]
fn s6_duplicates() {
    sent().of(1, 11, told(Outcome::Delivered)).then(12, delivered()).breaks("S6");
    // The sender was not told of the first, or the claim was dropped.
    assert_eq!(sent().then(12, delivered()).passes().duplicated, 1);
    let dropped = || sent().of(1, 11, told(Outcome::Delivered)).of(1, 11, What::Dropped { claim: 1 });
    dropped().then(12, delivered()).passes();
    dropped().exactly_once().then(12, delivered()).breaks("S6");
}

#[test]
fn s6_a_lease_that_a_healthy_process_lets_run_out() {
    held().fetched(41, 2, 2, 0).breaks("S6");
    held().of(1, 11, What::Buried { claim: 1 }).fetched(41, 2, 2, 0).passes();
}

#[test]
fn s6_who_stores_again_what_is_gone_gets_it_again() {
    let gone = sent().exactly_once().of(1, 12, removed(1, true));
    gone.then(13, stored_due(10)).fetched(14, 1, 2, 0).then(15, delivered()).passes();
}

#[test]
fn s7_removed_first() {
    held().of(1, 11, removed(1, true)).breaks("S7");
}

#[test]
fn s9_an_outage_is_counted() {
    held().of(1, 11, failed(1, 11, 5)).breaks("S9");
    held().then(11, moved(2, "retries-exhausted")).breaks("S9");
    held().then(11, moved(0, "expired")).breaks("S9");
}

#[test]
fn s10_attempts() {
    let refuse =
        |history: History, second| history.then(second, refused()).of(1, second, told(Outcome::Refused));
    let once = || refuse(held(), 10).of(1, 10, failed(1, 10, 1));
    let twice = || refuse(once().fetched(12, 1, 2, 1), 12);
    twice().then(13, moved(2, "retries-exhausted")).passes();
    twice().then(13, moved(1, "retries-exhausted")).breaks("S10");
    twice().then(13, moved(2, "no-destination")).breaks("S10");
    refuse(held(), 10).then(11, moved(1, "retries-exhausted")).breaks("S10");
    held().then(10, refused()).of(1, 10, failed(1, 10, 0)).breaks("S10");
    let unreadable =
        What::Moved { id: A.into(), content: None, attempts: 2, reason: "retries-exhausted".into() };
    twice().then(13, unreadable).breaks("S10");
}

#[test]
fn s10_no_destination_is_hopeless_at_once() {
    let homeless = What::Refused { id: A.into(), why: Refusal::NoDestination };
    held().then(10, homeless).of(1, 10, told(Outcome::Refused)).then(11, moved(1, "no-destination")).passes();
}

#[test]
fn s13_changes_of_mind() {
    stored().then(5, cancelled(Cancellation::InFlight)).breaks("S13");
    stored().then(5, cancelled(Cancellation::NotFound)).breaks("S13");
    held().then(11, cancelled(Cancellation::Cancelled)).breaks("S13");
    held().then(11, cancelled(Cancellation::InFlight)).passes();
    held().then(11, What::Rescheduled { id: A.into(), answer: Rescheduling::NotFound }).breaks("S13");
    stored().then(5, cancelled(Cancellation::Cancelled)).fetched(10, 1, 1, 0).breaks("S13");
    let counts = stored().then(5, cancelled(Cancellation::Cancelled)).then(6, audited(&[])).passes();
    assert_eq!((counts.cancelled, counts.lost), (1, 0));
}

#[test]
fn s14_sent_and_kept() {
    let history = || sent().exactly_once().of(1, 12, What::Dropped { claim: 1 });
    history().then(13, audited(&[A])).breaks("S14");
}

#[test]
fn l1_nothing_moves_after_the_faults_have_stopped() {
    let healed = |second| stored().then(15, What::Healed).then(second, audited(&[A]));
    healed(30).passes();
    let patient = || {
        let attempted = What::Attempted { id: A.into(), content: CONTENT, due: due(10), patience: None };
        history().then(0, attempted).then(0, stored_due(10)).then(15, What::Healed)
    };
    patient().then(75, audited(&[A])).passes();
    patient().then(76, audited(&[A])).breaks("L1");
}

#[test]
fn l3_late() {
    stored().then(30, audited(&[A])).passes();
    stored().then(31, audited(&[A])).breaks("L3");
}

#[test]
fn l7_too_late_to_be_sent() {
    let strict = || stored().by(|rules| rules.maximum_lateness = Some(seconds(5)));
    strict().fetched(15, 1, 1, 0).of(1, 15, sending()).passes();
    strict().fetched(16, 1, 1, 0).of(1, 16, sending()).breaks("L7");
    strict().fetched(16, 1, 1, 0).then(17, moved(0, "expired")).passes();
    strict().fetched(15, 1, 1, 0).then(17, moved(0, "expired")).breaks("S9");
}

#[test]
fn l9_a_leap_of_the_clock_is_an_excuse_and_no_more() {
    let ahead = || held().then(3_600, What::ClockLeapt);
    ahead().fetched(3_601, 2, 2, 0).of(1, 3_602, sending()).then(3_602, delivered()).passes();
    held().of(1, 11, What::Disturbed).fetched(41, 2, 2, 0).of(1, 42, sending()).breaks("L11");
    let back = || held().then(-3_600, What::ClockLeapt).of(1, -3_599, sending());
    back().passes();
    stored().then(-3_600, What::ClockLeapt).fetched(9, 1, 1, 0).breaks("S3");
    // What was late by the new time only is not late.
    stored().then(3_600, What::ClockLeapt).then(3_610, audited(&[A])).passes();
    stored().then(3_600, What::ClockLeapt).then(3_621, audited(&[A])).breaks("L3");
    // The same process may get it again.
    ahead().fetched(3_601, 1, 2, 0).passes();
}

#[test]
fn l11_a_holder_that_wakes_too_late() {
    held().of(1, 11, What::Disturbed).of(1, 41, sending()).breaks("L11");
    stored().of(1, 10, sending()).breaks("L11");
}

#[test]
fn l12_stopped_with_something_in_hand() {
    held().of(1, 12, What::Stopped).breaks("L12");
    held().of(1, 11, What::Released { claim: 1, ids: vec![A.into()] }).of(1, 12, What::Stopped).passes();
}

/// Of a process that was killed nobody knows what it did last.
#[test]
fn a_death_explains_what_nobody_wrote_down() {
    let taken = || stored().of_answers().taken(10, 1, 1).of(1, 10, sending());
    // It sent and removed, or sent and did not remove, or did neither.
    taken().of(1, 10, What::Died).then(11, delivered()).then(20, audited(&[])).passes();
    let again = || taken().then(10, delivered()).of(1, 10, What::Died).taken(12, 2, 2);
    again().then(13, delivered()).then(20, audited(&[A])).passes();
    let neither = taken().of(1, 10, What::Died).taken(12, 2, 2).then(13, delivered());
    neither.of(2, 14, removed(2, true)).then(20, audited(&[])).passes();
    again().exactly_once().then(13, delivered()).breaks("S6");
    // It stored and did not say so.
    let unsaid = || history().of_answers().attempted(0, A, due(10)).taken(10, 2, 2);
    assert_eq!(unsaid().then(11, delivered()).passes().recovered, 1);
    let found = || history().of_answers().attempted(0, A, due(10)).then(5, audited(&[A]));
    found().taken(10, 1, 1).then(11, delivered()).of(1, 12, removed(1, true)).then(13, audited(&[])).passes();
}

#[test]
fn the_living_have_no_such_excuse() {
    let told_twice = stored().of_answers().taken(10, 1, 1).then(10, delivered());
    told_twice.of(1, 11, told(Outcome::Delivered)).then(12, delivered()).breaks("S6");
    stored().of_answers().taken(10, 1, 1).of(1, 11, removed(1, true)).breaks("S7");
    let both = sent().of_answers().of(1, 12, removed(1, true));
    both.then(13, audited(&[A])).breaks("S1");
}
