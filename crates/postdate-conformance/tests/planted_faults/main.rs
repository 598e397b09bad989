//! The suite is tested, too: a backend with one planted fault is caught by the check that names it.

mod faulty;

use std::{sync::Arc, time::Duration};

use postdate_conformance::{Outcome, Place, Suite};
use postdate_core::{Backend, Memory};

use faulty::{Fault, FaultyBackend};

/// The check fails for this reason with the fault, and passes without it.
fn is_caught(fault: Fault, check: &str, reason: &str) {
    match suite(fault).check(check) {
        Outcome::Failed(why) => {
            assert!(why.contains(reason), "{fault:?} failed {check} for another reason: {why}")
        }
        other => panic!("{fault:?} was not caught by {check}: {other:?}"),
    }
    assert_eq!(suite(Fault::None).check(check), Outcome::Passed, "{check} without a fault");
}

fn suite(fault: Fault) -> Suite {
    Suite::new("faulty").stores(move |place| {
        let backend = FaultyBackend { memory: memory(place), fault };
        async move { Ok(Arc::new(backend) as Arc<dyn Backend>) }
    })
}

fn memory(place: &Place) -> Memory {
    place.shared(|| Memory::builder().lease(Duration::from_secs(3)).build())
}

macro_rules! caught {
    ($($test:ident: $fault:ident by $check:ident because $reason:literal;)*) => {
        $(#[test]
        fn $test() {
            is_caught(Fault::$fault, stringify!($check), $reason);
        })*
    };
}

caught! {
    a_store_that_delivers_early_is_caught: DeliversEarly
        by a_message_is_not_due_before_its_time because "fetched after";
    a_store_that_loses_the_order_is_caught: LosesTheOrder
        by messages_come_in_the_order_of_their_due_times because "drained";
    a_store_that_accepts_any_mode_is_caught: AcceptsAnyMode
        by a_mode_is_accepted_exactly_if_the_store_says_so because "accepted, not refused as Unsupported";
    a_store_that_truncates_bodies_is_caught: TruncatesBodies
        by any_body_comes_back_byte_for_byte because "another body came back";
    a_store_that_says_it_removed_what_was_gone_is_caught: RemovesAlways
        by what_was_removed_is_not_removed_again because "[true, true], not [false, true]";
    a_store_that_forgets_failures_is_caught: ForgetsFailures
        by failures_add_up because "held.message.failures is 0, not 1";
    a_store_that_forgets_claims_is_caught: ForgetsClaims
        by a_fetched_message_is_hidden_from_other_handles because "fetched, but not free";
    a_store_that_knows_no_conflict_is_caught: KnowsNoConflict
        by the_same_id_with_other_content_is_a_conflict because "accepted, not refused as Conflict";
    a_store_whose_next_due_time_counts_what_is_held_is_caught: NextDueCountsHeld
        by the_next_due_time_looks_past_what_is_held because "for a lease of";
    a_store_that_lies_about_cancellations_is_caught: CancelLies
        by a_held_message_is_too_late_to_cancel because "[Cancelled, Cancelled], not [InFlight, Cancelled]";
    a_store_that_ignores_exceptions_is_caught: IgnoresExceptions
        by messages_for_excepted_destinations_are_passed_over because "came is [\"down\"";
    a_store_that_stores_a_part_of_a_batch_is_caught: StoresInPart
        by of_a_batch_with_a_conflict_nothing_is_stored because "messages were delivered";
    a_store_that_renews_in_vain_is_caught: RenewsInVain
        by a_renewed_claim_holds_on because "a renewed claim ends no later";
    a_store_that_folds_the_case_of_endpoints_is_caught: FoldsEndpoints
        by endpoints_never_see_each_others_messages because "endpoint \"Orders\"";
    a_store_that_panics_is_caught: Panics
        by the_counts_are_right because "panicked: planted";
}

#[test]
fn an_unknown_check_is_an_error() {
    assert!(matches!(suite(Fault::None).check("nonsense"), Outcome::Failed(why) if why.contains("nonsense")));
}

#[test]
fn what_a_store_cannot_do_is_ignored_with_the_missing_capability() {
    let durable = suite(Fault::None).check("what_was_stored_survives_reopening");
    assert_eq!(durable, Outcome::Ignored("needs durability".into()));
    let wakes = suite(Fault::None).without_wake_ups().check("a_change_between_two_calls_is_not_missed");
    assert_eq!(wakes, Outcome::Ignored("needs wake-ups".into()));
}
