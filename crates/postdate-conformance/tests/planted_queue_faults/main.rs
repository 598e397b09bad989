//! The checks for queues are tested, too: queues with one planted fault are caught by the check that names it.

#![expect(clippy::unwrap_used, reason = "a test may panic where the world is not as it should be")]

mod claim;
mod queues;
mod receiver;

use std::{sync::Arc, thread, time::Duration};

use postdate_conformance::{Outcome, Place, Suite};
use postdate_core::{Backend, Memory, Queues};

use queues::FaultyQueues;

/// What is wrong with the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    // Sending.
    SendsOutside,
    StopsAtAFailure,
    ReversesBatches,
    TruncatesBodies,
    TakesWhatIsTooLarge,
    RejectsTheWholeBatch,
    SendsAgainWhenDropped,
    ShowsTheBodyInErrors,
    // Administration.
    CreatesAgain,
    FoldsNames,
    CountsWhatItLeft,
    BrowsingTakes,
    BrowsesFromThePosition,
    // Receiving.
    CountsNoDeliveries,
    ForgetsHolds,
    SelectsOneForAnId,
    LosesWhatADroppedCallTook,
    NeverWakes,
    MissesWhatWasBefore,
    EndsWithItsHandle,
    // Settling.
    CompletesAnything,
    CompletesOneByOne,
    GivesBackToTheEnd,
    MovesOneByOne,
    MovesUnderNewIds,
    MovesACopy,
    KeepsWhenDropped,
    LosesTheRest,
    RenewsWhatIsLost,
    RenewsInVain,
    TellsWhenItWasSent,
    TakesFalseForLost,
    ShowsBodies,
}

/// What does not come within this time does not come: memory is fast.
const PATIENCE: Duration = Duration::from_secs(4);

/// The check fails for this reason with the fault, and passes without it. Both at once: most of it is waiting.
fn is_caught(fault: Fault, check: &str, reason: &str) {
    let (with, without) = thread::scope(|scope| {
        let with = scope.spawn(|| suite(fault).patience(PATIENCE).check(check));
        let without = suite(Fault::None).check(check);
        (with.join(), without)
    });
    match with.unwrap() {
        Outcome::Failed(why) => {
            assert!(why.contains(reason), "{fault:?} failed {check} for another reason: {why}")
        }
        other => panic!("{fault:?} was not caught by {check}: {other:?}"),
    }
    assert_eq!(without, Outcome::Passed, "{check} without a fault");
}

fn suite(fault: Fault) -> Suite {
    // The end of a lease would hide that nothing was given back.
    let lease = Duration::from_secs(if fault == Fault::KeepsWhenDropped { 60 } else { 3 });
    let memory = move |place: &Place| place.shared(|| Memory::builder().lease(lease).build());
    Suite::new("faulty")
        .stores(move |place| {
            let memory = memory(place);
            async move { Ok(Arc::new(memory) as Arc<dyn Backend>) }
        })
        .queues(move |place| {
            let queues = FaultyQueues::new(memory(place).queues(), fault);
            async move { Ok(Arc::new(queues) as Arc<dyn Queues>) }
        })
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
    a_dispatcher_that_sends_outside_the_transaction_is_caught: SendsOutside
        by what_is_sent_within_a_dropped_transaction_never_appears because "what was rolled back appeared";
    a_dispatcher_that_stops_at_a_failure_is_caught: StopsAtAFailure
        by a_missing_destination_does_not_keep_others_from_being_sent because "failed is [";
    a_dispatcher_that_reverses_batches_is_caught: ReversesBatches
        by a_batch_for_several_queues_keeps_its_order_in_each because "[\"m";
    a_dispatcher_that_truncates_bodies_is_caught: TruncatesBodies
        by a_sent_message_arrives_byte_for_byte because " came as ";
    a_dispatcher_that_takes_what_is_too_large_is_caught: TakesWhatIsTooLarge
        by a_message_over_the_limit_is_rejected_alone because "refused is [None, None, None]";
    a_dispatcher_that_rejects_the_whole_batch_is_caught: RejectsTheWholeBatch
        by a_message_over_the_limit_is_rejected_alone because "refused is [Some(Rejected), Some(Rejected)";
    a_dispatcher_that_sends_again_when_its_call_is_dropped_is_caught: SendsAgainWhenDropped
        by of_a_dropped_call_of_dispatch_nothing_arrives_twice because "twice, or not in order";
    a_dispatcher_that_shows_the_body_in_errors_is_caught: ShowsTheBodyInErrors
        by no_error_of_queues_shows_a_body_or_a_header_value because "a refused message shows a secret";
    queues_that_are_created_again_are_caught: CreatesAgain
        by creating_a_queue_again_says_so because "!queues.create";
    queues_that_fold_names_are_caught: FoldsNames
        by queues_of_similar_names_are_different because "\"Orders\" is there already";
    a_purge_that_counts_what_it_left_is_caught: CountsWhatItLeft
        by purging_leaves_what_receivers_hold because "is 5, not 4";
    queues_that_are_emptied_by_browsing_are_caught: BrowsingTakes
        by browsing_takes_nothing because "[QueuedMessage";
    browsing_that_begins_at_the_position_is_caught: BrowsesFromThePosition
        by browsing_begins_after_any_position_and_ends_with_the_queue because "positions(&rest)";
    a_receiver_that_counts_no_deliveries_is_caught: CountsNoDeliveries
        by deliveries_are_counted because "deliveries is 0, not 1";
    a_receiver_that_forgets_holds_is_caught: ForgetsHolds
        by a_received_message_is_hidden_from_other_receivers because "received, but not free";
    a_receiver_that_selects_one_for_an_id_is_caught: SelectsOneForAnId
        by an_id_selects_every_message_that_has_it_and_each_once because "[\"m00000\"], not [\"m00000\", \"m00000\"]";
    a_receiver_that_loses_what_a_dropped_call_took_is_caught: LosesWhatADroppedCallTook
        by a_dropped_call_of_receive_takes_nothing because "in vain for what a dropped call had received";
    a_receiver_that_never_wakes_is_caught: NeverWakes
        by a_wait_ends_when_a_message_arrives because "changed() of the receiver did not complete";
    a_receiver_that_misses_what_was_before_is_caught: MissesWhatWasBefore
        by a_message_that_arrived_before_the_wait_is_not_missed because "changed() of the receiver did not complete";
    a_receiver_that_ends_with_its_handle_is_caught: EndsWithItsHandle
        by a_receiver_and_its_claims_outlive_the_handle_they_came_from because "the handle is closed";
    a_claim_that_completes_anything_is_caught: CompletesAnything
        by what_is_not_held_is_not_settled because "[true, true, true], not [false, false, true]";
    a_claim_that_completes_one_by_one_is_caught: CompletesOneByOne
        by a_dropped_call_of_complete_completes_all_or_nothing because "2 of 3 are left";
    a_claim_that_gives_back_to_the_end_is_caught: GivesBackToTheEnd
        by messages_given_back_by_several_claims_come_in_the_old_order because "names(&came.messages) is";
    a_claim_that_moves_one_by_one_is_caught: MovesOneByOne
        by a_dropped_call_of_move_moves_all_or_nothing because "left and moved are (2, 1)";
    a_claim_that_moves_under_new_ids_is_caught: MovesUnderNewIds
        by a_browsed_and_a_moved_message_are_the_same_byte_for_byte because "was moved as";
    a_claim_that_moves_a_copy_is_caught: MovesACopy
        by a_message_can_be_moved_to_another_queue because "what was moved is held still";
    a_claim_that_keeps_what_it_held_when_it_is_dropped_is_caught: KeepsWhenDropped
        by a_dropped_receive_claim_gives_its_messages_back_in_order because "in vain for a message in the queue";
    a_claim_that_loses_the_rest_is_caught: LosesTheRest
        by a_claim_that_has_settled_a_part_holds_the_rest because "is [false], not [true]";
    a_claim_that_renews_what_is_lost_is_caught: RenewsWhatIsLost
        by a_lost_receive_claim_is_not_renewed because "accepted, not refused as ClaimLost";
    a_claim_that_takes_an_answer_of_false_for_its_end_is_caught: TakesFalseForLost
        by positions_that_never_were_are_answered_false_and_harm_nothing because "planted: lost";
    a_claim_that_renews_in_vain_is_caught: RenewsInVain
        by a_receive_claim_says_when_it_ends_and_renewing_puts_that_off because "renewed, it ends at";
    a_claim_that_takes_the_time_of_sending_for_that_of_receiving_is_caught: TellsWhenItWasSent
        by a_receive_claim_says_by_the_clock_of_the_queue_when_it_was_given because "given at";
    a_claim_that_shows_bodies_is_caught: ShowsBodies
        by no_debug_output_of_queues_shows_a_body_or_a_header_value because "shows a secret";
}
