//! The histories are tested, too: a store with a fault that takes several calls to see is found, and the history
//! that shows it is short.

mod faulty_queues;
mod faulty_store;

use std::{sync::Arc, time::Duration};

use postdate_conformance::{Outcome, Place, Suite};
use postdate_core::{Backend, Memory, Queues};

use faulty_queues::{FaultyQueues, QueueFault};
use faulty_store::{Fault, FaultyBackend};

const ONE: &str = "any_history_of_one_handle_goes_as_the_model_says";
const TWO: &str = "any_history_of_two_handles_goes_as_the_model_says";
const LEASES: &str = "any_history_in_which_leases_end_goes_as_the_model_says";
const QUEUES: &str = "any_history_of_queues_goes_as_the_model_says";

/// The check finds the fault, in a history of few steps, for one of these reasons, and says how to repeat it.
fn is_found(suite: &Suite, check: &str, steps: usize, reasons: &[&str]) {
    let Outcome::Failed(why) = suite.check(check) else { panic!("nothing was found") };
    assert!(reasons.iter().any(|reason| why.contains(reason)), "found for another reason: {why}");
    let number = format!("{}. ", steps + 1);
    assert!(!why.contains(&number), "more than {steps} steps: {why}");
    assert!(why.contains("POSTDATE_SEED=") && why.ends_with(check), "not to be repeated: {why}");
}

fn store(fault: Fault) -> Suite {
    store_on(memory, fault)
}

fn store_on(memory: fn(&Place) -> Memory, fault: Fault) -> Suite {
    Suite::new("faulty").stores(move |place| {
        let backend = FaultyBackend::new(memory(place), place, fault);
        async move { Ok(Arc::new(backend) as Arc<dyn Backend>) }
    })
}

fn queues(fault: QueueFault) -> Suite {
    Suite::new("faulty").queues(move |place| {
        let queues = FaultyQueues { queues: memory(place).queues(), fault };
        async move { Ok(Arc::new(queues) as Arc<dyn Queues>) }
    })
}

fn memory(place: &Place) -> Memory {
    place.shared(|| Memory::builder().lease(Duration::from_secs(2)).build())
}

fn in_transactions(place: &Place) -> Memory {
    place.shared(|| Memory::builder().lease(Duration::from_secs(120)).claims_in_transactions().build())
}

fn long_leases(place: &Place) -> Memory {
    place.shared(|| Memory::builder().lease(Duration::from_secs(120)).build())
}

macro_rules! found {
    ($($test:ident: $suite:expr, by $check:ident within $steps:literal because [$($reason:literal),+];)*) => {
        $(#[test]
        fn $test() {
            is_found(&$suite, $check, $steps, &[$($reason),+]);
        })*
    };
}

found! {
    a_repeated_store_that_reschedules_is_found: store(Fault::RepeatingReschedules),
        by ONE within 5 because ["and it is ScheduledSummary"];
    a_store_that_compares_what_became_of_a_due_time_is_found: store(Fault::ComparesWhatBecame),
        by ONE within 3 because ["refused as Conflict"];
    a_limit_that_counts_what_is_excepted_is_found: store(Fault::LimitsBeforeExcepting),
        by ONE within 4 because ["was not fetched"];
    a_commit_that_counts_failures_is_found: store(Fault::CommitCounts),
        by ONE within 4 because ["failures"];
    answers_in_another_order_are_found: store(Fault::AnswersBackwards),
        by ONE within 3 because ["the answers were"];
    a_rescheduling_that_forgets_failures_is_found: store(Fault::RescheduleForgets),
        by ONE within 4 because ["and 0 failures"];
    a_listing_that_skips_ties_between_pages_is_found: store(Fault::PagesSkipTies),
        by ONE within 2 because ["is not listed"];
    a_next_due_time_of_what_is_excepted_is_found: store(Fault::NextDueIgnoresExceptions),
        by ONE within 2 because ["is next"];
    a_store_that_forgets_when_it_is_reopened_is_found: store(Fault::ReopeningForgets),
        by ONE within 4 because ["is not listed"];
    a_release_of_what_another_claim_holds_is_found: store(Fault::ReleasesOthers),
        by ONE within 7 because ["was fetched and is held"];
    a_batch_that_is_stored_bit_by_bit_is_found: store(Fault::StoresBitByBit),
        by TWO within 4 because ["in no order", "listed without cause", "was fetched and is not there"];
    a_cancellation_that_tells_what_was_seen_before_is_found: store(Fault::CancelTellsWhatWasSeen),
        by TWO within 4 because ["in no order", "is not listed", "listed without cause"];
    such_a_cancellation_is_found_beside_transactions: store_on(in_transactions, Fault::CancelTellsWhatWasSeen),
        by TWO within 4 because ["in no order", "is not listed", "listed without cause"];
    a_claim_that_removes_after_its_lease_is_found: store(Fault::RemovesAfterItsLease),
        by LEASES within 20 because ["the answers were"];
    a_transaction_that_ends_on_commit_only_is_found: store_on(in_transactions, Fault::SettlesOnCommitOnly),
        by ONE within 6 because ["contended, it was told", "is listed", "is shown as in flight", "listed without cause"];
    a_transaction_that_settles_a_part_before_its_end_is_found: store_on(long_leases, Fault::SettlesAPartAtOnce),
        by ONE within 4 because ["is not listed", "was shown as None", "listed as", "was fetched and is held"];
    an_abandoned_message_that_goes_to_the_end_is_found: queues(QueueFault::AbandonsToTheEnd),
        by QUEUES within 3 because ["received, but not there"];
    a_move_that_is_refused_half_way_is_found: queues(QueueFault::MovesInPart),
        by QUEUES within 4 because ["is not free"];
    a_purge_that_counts_what_is_held_is_found: queues(QueueFault::PurgeCountsHeld),
        by QUEUES within 3 because ["the answer was"];
    a_selection_that_finds_one_of_each_id_is_found: queues(QueueFault::FindsOneOfEach),
        by QUEUES within 4 because ["passed over"];
    a_look_that_begins_one_too_early_is_found: queues(QueueFault::BrowsesFromBefore),
        by QUEUES within 3 because ["are shown"];
}

#[test]
fn a_history_is_repeated_by_the_command_of_whoever_judges() {
    let why = |suite: Suite| match suite.check(ONE) {
        Outcome::Failed(why) => why,
        outcome => panic!("{outcome:?}"),
    };
    let usual = why(store(Fault::PagesSkipTies));
    assert!(
        usual.contains(" POSTDATE_HISTORIES=1 cargo test ") && usual.ends_with(&format!("-- {ONE}")),
        "{usual}"
    );
    let own = why(store(Fault::PagesSkipTies).repeated_by("acme judge --filter"));
    assert!(own.ends_with(&format!(" POSTDATE_HISTORIES=1 acme judge --filter {ONE}")), "{own}");
}

#[test]
fn without_a_fault_nothing_is_found() {
    for check in [ONE, TWO, LEASES] {
        assert_eq!(store(Fault::None).check(check), Outcome::Passed, "{check}");
    }
    for check in [ONE, TWO] {
        assert_eq!(
            store_on(in_transactions, Fault::None).check(check),
            Outcome::Passed,
            "transactions: {check}"
        );
    }
    assert_eq!(queues(QueueFault::None).check(QUEUES), Outcome::Passed);
}
