//! The judge is tested too: short histories of messages that are handed over to a pump, each with one mistake or
//! one excuse.

use jiff::{SignedDuration, Timestamp};
use postdate_history::{
    Event, Guarantee, Judge, Knowledge, Queued, Refusal, Rules, SettledCopy, Wanted, Way, What,
};

const A: &str = "a";
const CONTENT: u64 = 42;

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + seconds(second)
}

/// A history in the making. Times are seconds from its start.
#[derive(Clone)]
struct History(Vec<Event>);

/// A message, due ten seconds after it was handed over, is in the queue.
fn handed_over() -> History {
    let due = Wanted::After(seconds(10));
    let attempted = What::Attempted { id: A.into(), content: CONTENT, due, patience: Some(seconds(20)) };
    History(Vec::new()).then(0, attempted).then(0, copy(1)).then(0, What::Accepted { id: A.into() })
}

/// Process 1 holds it.
fn received() -> History {
    handed_over().of(1, 4, lock(1, 34))
}

fn copy(position: u64) -> What {
    What::HandedOver { id: A.into(), position }
}

fn lock(claim: u64, until: i64) -> What {
    let messages = vec![Queued { position: 1, id: A.into() }];
    What::Received { claim, until: Some(at(until)), messages }
}

fn stored(due: i64) -> What {
    What::Stored { id: A.into(), due: at(due) }
}

fn completed(claim: u64, held: bool) -> What {
    What::Completed { claim, messages: vec![SettledCopy { position: 1, held }] }
}

fn unstorable() -> What {
    What::Refused { id: A.into(), why: Refusal::NotStorable }
}

fn sending() -> What {
    What::Sending { ids: vec![A.into()], way: Way::ErrorQueue }
}

fn moved(attempts: u32) -> What {
    What::Moved { id: A.into(), content: Some(CONTENT), attempts, reason: "not-storable".into() }
}

impl History {
    fn then(mut self, second: i64, what: What) -> Self {
        self.0.push(Event::outside(at(second), what));
        self
    }

    fn of(mut self, process: u32, second: i64, what: What) -> Self {
        self.0.push(Event::of(process, at(second), what));
        self
    }

    fn judge(&self) -> Judge {
        let mut judge = Judge::new(Rules {
            guarantee: Guarantee::AtLeastOnce,
            knowledge: Knowledge::Effects,
            retries: 3,
            shortest_retry: seconds(1),
            resolution: SignedDuration::from_micros(1),
            maximum_lateness: None,
            converges_within: Some(seconds(60)),
        });
        self.0.iter().for_each(|event| judge.take(event));
        judge
    }

    /// The last event is what breaks the promise, and nothing else is broken.
    #[track_caller]
    fn breaks(mut self, promise: &str) {
        let judge = self.judge();
        let found: Vec<_> = judge.violations().iter().map(|violation| violation.promise).collect();
        assert_eq!(found, [promise], "{:?}", judge.violations());
        self.0.pop();
        self.passes();
    }

    #[track_caller]
    fn passes(self) -> Judge {
        let judge = self.judge();
        assert_eq!(judge.violations(), []);
        judge
    }
}

#[test]
fn a_plain_hand_over_is_clean() {
    let judge = received().of(1, 5, stored(11)).of(1, 5, completed(1, true)).passes();
    assert_eq!((judge.queued(), judge.counts().pending, judge.counts().acknowledged), (0, 1, 1));
    assert!(handed_over().passes().is_busy(at(1)));
}

#[test]
fn s1_an_acceptance_of_what_is_not_in_the_queue() {
    let history = History(handed_over().0[..1].to_vec());
    history.then(0, What::Accepted { id: A.into() }).breaks("S1");
}

#[test]
fn s2_an_invention_in_the_queue() {
    History(Vec::new()).then(0, copy(1)).breaks("S2");
}

#[test]
fn s3_a_delay_counts_from_the_handing_over() {
    received().of(1, 5, stored(9)).breaks("S3");
    received().of(1, 5, stored(15)).breaks("S3");
    handed_over().of(1, 60, lock(1, 90)).of(1, 61, stored(61)).passes();
}

#[test]
fn s4_two_pumps_hold_the_same() {
    received().of(2, 33, lock(2, 63)).breaks("S4");
}

#[test]
fn s5_a_stale_lock_has_no_effect_and_says_so() {
    let stale = || received().of(1, 5, What::Disturbed).of(1, 5, stored(11)).of(2, 40, lock(2, 70));
    stale().of(1, 41, completed(1, false)).of(2, 41, completed(2, true)).passes();
    stale().of(1, 41, completed(1, true)).breaks("S5");
    stale().of(1, 41, What::LockRenewed { claim: 1, until: at(71) }).of(2, 42, completed(2, true)).passes();
    received().of(1, 40, What::LockRenewed { claim: 1, until: at(70) }).breaks("S5");
}

#[test]
fn s6_a_healthy_pump_renews_its_lock() {
    received().of(2, 40, lock(2, 70)).breaks("S6");
    for excuse in [What::Disturbed, What::Died, What::LockBuried { claim: 1 }] {
        assert_eq!(received().of(1, 5, excuse).of(2, 40, lock(2, 70)).passes().counts().locks_ran_out, 1);
    }
    received().of(1, 5, What::LockRenewed { claim: 1, until: at(35) }).of(2, 34, lock(2, 64)).breaks("S4");
}

#[test]
fn s7_completed_before_it_is_stored() {
    received().of(1, 5, completed(1, true)).breaks("S7");
}

#[test]
fn s9_and_s10_only_what_cannot_be_stored_goes_to_the_error_queue_and_after_one_attempt() {
    received().of(1, 5, sending()).of(1, 5, moved(1)).breaks("S9");
    let poison = || received().then(4, unstorable()).of(1, 5, sending());
    poison().of(1, 5, moved(1)).of(1, 6, completed(1, true)).passes();
    poison().of(1, 5, moved(2)).breaks("S10");
}

#[test]
fn s6_a_second_copy_in_the_error_queue_needs_an_excuse() {
    let told = What::Told { outcomes: vec![(A.into(), postdate_history::Outcome::Delivered)] };
    let moved_once = || received().then(4, unstorable()).of(1, 5, moved(1)).of(1, 5, told.clone());
    moved_once().of(1, 6, moved(1)).breaks("S6");
    moved_once().of(1, 6, What::LockDropped { claim: 1 }).of(2, 7, lock(2, 37)).of(2, 8, moved(1)).passes();
    moved_once().then(6, copy(2)).of(1, 7, moved(1)).passes();
}

#[test]
fn l3_and_l1_nothing_is_in_the_queue_for_too_long() {
    let audited = || What::Audited { ids: Vec::new() };
    handed_over().then(20, audited()).passes();
    handed_over().then(21, audited()).breaks("L3");
    let mut impatient = handed_over();
    if let What::Attempted { patience, .. } = &mut impatient.0[0].what {
        *patience = None;
    }
    let healed = impatient.then(100, What::Healed);
    healed.clone().then(160, audited()).passes();
    healed.then(161, audited()).breaks("L1");
}

#[test]
fn l11_what_is_moved_is_held() {
    let poison = || received().then(4, unstorable());
    poison().of(2, 5, sending()).breaks("L11");
    poison().of(1, 35, sending()).breaks("L11");
}

#[test]
fn l12_a_pump_that_stopped_holds_nothing() {
    received().of(1, 5, What::Stopped).breaks("L12");
    received().of(1, 5, What::GivenBack { claim: 1, positions: vec![1] }).of(1, 5, What::Stopped).passes();
}

#[test]
fn l9_after_a_leap_of_the_clock_nobody_can_know_who_holds_what() {
    received().then(3_600, What::ClockLeapt).of(2, 3_600, lock(2, 3_630)).passes();
}
