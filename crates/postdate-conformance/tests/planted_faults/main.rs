//! The suite is tested, too: a backend with one planted fault is caught by the check that names it.

mod faulty;

use std::{sync::Arc, thread, time::Duration};

use postdate_conformance::{Outcome, Place, Suite};
use postdate_core::{Backend, Memory, Queues};

use faulty::{Fault, FaultyBackend, Meddlings};

/// What does not come within this time does not come: memory is fast.
const PATIENCE: Duration = Duration::from_secs(4);

/// The check fails for this reason with the fault, and passes without it. Both at once: most of it is waiting.
fn is_caught(fault: Fault, check: &str, reason: &str) {
    is_caught_in(memory, fault, check, reason);
}

fn is_caught_in(memory: Memories, fault: Fault, check: &str, reason: &str) {
    let (with, without) = thread::scope(|scope| {
        let with = scope.spawn(|| suite_in(memory, fault).patience(PATIENCE).check(check));
        let without = suite_in(memory, Fault::None).check(check);
        (with.join(), without)
    });
    match with.expect("a check catches panics itself") {
        Outcome::Failed(why) => {
            assert!(why.contains(reason), "{fault:?} failed {check} for another reason: {why}")
        }
        other => panic!("{fault:?} was not caught by {check}: {other:?}"),
    }
    assert_eq!(without, Outcome::Passed, "{check} without a fault");
}

fn suite(fault: Fault) -> Suite {
    suite_in(memory, fault)
}

fn suite_in(memory: Memories, fault: Fault) -> Suite {
    Suite::new("faulty")
        .stores(move |place| {
            let meddlings = place.shared(Meddlings::default);
            let backend = FaultyBackend { memory: memory(place), fault, meddlings };
            async move { Ok(Arc::new(backend) as Arc<dyn Backend>) }
        })
        .queues(move |place| {
            let queues = memory(place).queues();
            async move { Ok(Arc::new(queues) as Arc<dyn Queues>) }
        })
        .meddling(|place, meddling| {
            let meddled = place.shared(Meddlings::default).meddle(meddling);
            async move { Ok(meddled) }
        })
}

/// The memory of a place.
type Memories = fn(&Place) -> Memory;

fn memory(place: &Place) -> Memory {
    place.shared(|| Memory::builder().lease(Duration::from_secs(3)).build())
}

fn in_transactions(place: &Place) -> Memory {
    let clock = place.shared(Meddlings::default);
    let builder = Memory::builder().clock(clock).lease(Duration::from_secs(120));
    place.shared(|| builder.claims_in_transactions().build())
}

macro_rules! caught {
    ($($test:ident: $fault:ident $(in $memory:ident)? by $check:ident because $reason:literal;)*) => {
        $(#[test]
        fn $test() {
            caught!(@ $($memory)?)(Fault::$fault, stringify!($check), $reason);
        })*
    };
    (@) => { is_caught };
    (@ $memory:ident) => { |fault, check: &str, reason: &str| is_caught_in($memory, fault, check, reason) };
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

    a_backend_that_can_be_set_up_once_only_is_caught: SetsUpOnce
        by eight_may_set_up_at_once because "set up: refused";
    a_backend_that_cuts_the_names_of_endpoints_off_is_caught: CutsEndpointNames
        by endpoints_with_the_longest_names_are_told_apart because "other content";
    a_backend_that_takes_a_newer_schema_for_its_own_is_caught: AcceptsANewerSchema
        by a_newer_schema_is_refused_and_left_alone because "accepted, not refused as TooNew";
    a_backend_that_loses_messages_with_an_older_schema_is_caught: LosesMessagesWithAnOlderSchema
        by an_older_schema_is_brought_up_and_keeps_its_messages because "for all due messages";
    a_backend_that_makes_tables_when_it_is_opened_is_caught: MakesTablesWhenOpened
        by without_the_right_to_make_tables_all_but_setting_up_works because "opening: faulty";
    a_backend_that_does_not_say_what_right_is_missing_is_caught: BlamesNobodyForAMissingRight
        by setting_up_without_the_right_to_make_tables_says_so because "a matter of configuration, not of Other";

    a_store_that_rounds_due_times_down_is_caught: RoundsDown
        by due_times_are_rounded_up_to_the_resolution because "was rounded down to";
    a_store_for_which_a_long_delay_is_none_is_caught: TurnsLongDelaysIntoNone
        by a_long_delay_is_just_a_delay because "was stored as";
    a_store_that_keeps_what_clocks_on_walls_show_is_caught: LosesTheRepeatedHour
        by instants_are_the_same_in_every_time_zone_of_a_session because "in America/New_York";
    a_store_that_takes_headers_for_text_is_caught: MakesTextOfHeaders
        by random_messages_come_back_byte_for_byte because "other headers for";
    a_store_that_stores_in_steps_is_caught: StoresInSteps
        by a_dropped_call_of_store_happened_as_a_whole_or_not_at_all because "1 of 3 messages of a dropped call";
    a_store_that_cancels_in_steps_is_caught: CancelsInSteps
        by a_dropped_cancellation_happened_as_a_whole_or_not_at_all because "on one message of two";
    a_store_that_cancels_what_was_free_a_moment_ago_is_caught: CancelsWhatItSawFree
        by of_a_cancellation_and_a_claim_exactly_one_wins_in_ten_thousand_races
        because "is held by 1 claims, and its cancellations were answered";
    a_list_that_skips_lines_is_caught: SkipsLinesOfAList
        by following_the_cursors_shows_every_message_exactly_once because "of 100 messages, or in another order";
    a_list_that_takes_prefixes_for_patterns_is_caught: TakesPrefixesForPatterns
        by hostile_text_in_a_filter_means_itself because "ids that begin with \"100%\"";
    a_store_that_shows_bodies_is_caught: ShowsBodies
        by no_debug_output_shows_a_body_or_a_header_value because "the store shows a secret";
    an_error_that_tells_a_body_is_caught: TellsBodies
        by no_error_shows_a_body_or_a_header_value because "a conflict shows a secret";
    a_store_that_never_wakes_anybody_is_caught: NeverWakes
        by a_wait_ends_when_a_message_is_due_earlier because "changed() of the store did not complete";
    a_store_that_wakes_nobody_when_it_ends_is_caught: NeverWakes
        by what_was_stored_wakes_others_though_the_process_that_stored_it_ends
        because "changed() of the store did not complete";
    a_store_that_wakes_all_the_time_is_caught: AlwaysWakes
        by a_wait_does_not_end_all_the_time_for_no_reason because "again and again";

    a_store_that_brings_too_many_is_caught: BringsTooMany
        by no_more_messages_are_fetched_than_were_asked_for because "2 of 1";
    a_store_that_brings_one_at_a_time_is_caught: BringsOneAtATime
        by a_large_backlog_comes_oldest_first_in_full_batches_and_each_message_once because "20000 fetches";
    a_store_that_reads_one_page_is_caught: ReadsOnePage
        by a_message_behind_many_that_are_held_is_found because "nothing was fetched though a message is due";
    a_store_with_a_watermark_is_caught: KeepsAWatermark
        by what_was_stored_late_with_an_earlier_due_time_is_found because "nothing was fetched though a message is due";
    a_store_that_hides_contention_is_caught: HidesContention
        by others_are_told_that_what_is_due_is_held because "batch.contended";
    a_store_that_loses_what_nobody_took_is_caught: LosesWhatNobodyTook
        by a_dropped_call_of_fetch_holds_nothing_for_good because "messages are left";
    a_store_that_lets_engines_spin_is_caught: AsksToComeBackAtOnce
        by an_idle_engine_leaves_the_store_alone because "in which nothing happened";
    a_store_that_never_hands_over_is_caught: NeverHandsOver
        by when_a_handle_is_closed_another_one_goes_on because "in vain for a due message";
    a_store_that_lets_engines_sleep_too_long_is_caught: AsksToComeBackLate
        by the_engine_is_never_early_and_soon_on_time because " late";
    a_store_that_stops_at_unreadable_rows_is_caught: StopsAtUnreadableRows
        by an_unreadable_row_does_not_stop_the_rest because "a row cannot be read";
    a_store_that_puts_whole_batches_aside_is_caught: PutsAsideWholeBatches
        by rows_that_are_all_unreadable_do_not_stop_what_comes_behind_them because "for all due messages";
    a_store_for_which_unreadable_rows_stay_due_is_caught: LeavesUnreadableRowsDue
        by an_unreadable_row_does_not_hold_up_the_next_due_time because "what is due next is";
    a_store_whose_unreadable_rows_let_engines_spin_is_caught: LeavesUnreadableRowsDue
        by an_engine_goes_past_an_unreadable_row_and_does_not_come_back_for_it because "for a row that cannot be read";
    a_store_that_hides_unreadable_rows_is_caught: HidesUnreadableRows
        by an_unreadable_row_is_shown_with_what_is_wrong_with_it because "the list shows []";

    a_claim_that_removes_nothing_is_caught: RemovesNothing
        by a_removed_message_is_gone because "handle.get";
    an_engine_whose_claims_remove_nothing_is_caught: RemovesNothing
        by the_engine_sends_everything_once_and_empties_the_store because "for the store to be empty";
    an_engine_whose_transactions_remove_nothing_is_caught: RemovesNothing
        by in_one_transaction_everything_arrives_exactly_once_over_a_cut because "for the store to be empty";
    an_engine_whose_claims_forget_failures_is_caught: ForgetsFailures
        by a_poison_message_is_tried_as_often_as_it_may_be_and_holds_up_nobody because "in vain for messages to arrive";
    a_backlog_whose_claims_are_forgotten_is_caught: ForgetsClaims
        by two_handles_share_a_large_backlog because "removing what the claim holds was answered";
    a_claim_that_removes_in_steps_is_caught: RemovesInSteps
        by in_every_mode_a_dropped_removal_happened_as_a_whole_or_not_at_all because "on one message of two";
    a_claim_that_counts_in_steps_is_caught: CountsInSteps
        by a_dropped_failure_is_counted_for_the_whole_batch_or_not_at_all because "the failures of a dropped call";
    a_claim_that_commits_in_steps_is_caught: CommitsInSteps
        by in_every_mode_a_dropped_commit_happened_as_a_whole_or_not_at_all because "on one message of two";
    a_claim_that_counts_releases_as_failures_is_caught: CountsReleases
        by an_outage_of_a_destination_consumes_no_retries because "the outage was counted";
    a_claim_that_counts_being_dropped_as_a_failure_is_caught: CountsDrops
        by a_dropped_claim_gives_its_messages_back because "giving back was counted as a failure";
    a_claim_that_keeps_what_is_dropped_is_caught: KeepsWhatIsDropped
        by a_dropped_claim_gives_its_messages_back because "only after the end of its lease";
    a_claim_that_ignores_retry_times_is_caught: IgnoresRetryTimes
        by a_failed_message_comes_again_at_its_retry_time_and_not_before because "after the failure";
    a_claim_that_forgets_errors_is_caught: ForgetsErrors
        by the_last_error_is_shown because "not Some(\"first\")";
    a_claim_that_chokes_on_a_text_is_caught: ChokesOnNul
        by an_error_text_of_any_letters_does_not_keep_a_failure_from_being_counted because "a text with a NUL in it";
    a_claim_without_a_fence_is_caught: KnowsNoFence
        by a_claim_cannot_touch_what_it_gave_back because "a stale claim was answered with [true]";

    a_claim_that_settles_on_commit_only_is_caught: SettlesOnCommitOnly
        by what_a_claim_settles_is_seen_by_others_as_its_kind_says because "what was removed is there";
    a_transaction_that_settles_on_commit_only_is_caught: SettlesOnCommitOnly in in_transactions
        by what_a_claim_settles_is_seen_by_others_as_its_kind_says because "at the end: what was removed is there";
    a_transaction_that_forgets_when_dropped_what_it_settled_is_caught: SettlesOnCommitOnly in in_transactions
        by a_dropped_claim_has_done_what_it_settled_but_in_transaction_scope because "came back, which was settled";
    a_transaction_that_shows_a_part_is_caught: SettlesAtOnce
        by what_a_claim_settles_is_seen_by_others_as_its_kind_says because "is gone before the claim ended";
    a_shared_transaction_that_shows_a_part_is_caught: SettlesAtOnce
        by in_transaction_scope_nothing_is_seen_by_others_before_the_commit because "is gone before the claim ended";
    a_transaction_that_does_when_dropped_what_it_should_roll_back_is_caught: SettlesAtOnce
        by a_dropped_claim_has_done_what_it_settled_but_in_transaction_scope because "did not come back";
    a_transaction_that_hides_that_it_was_lost_is_caught: HidesLosses in in_transactions
        by a_claim_whose_transaction_broke_has_done_nothing_and_says_so because "accepted, not refused as ClaimLost";
    a_transaction_that_keeps_what_it_gave_back_is_caught: GivesNothingBack in in_transactions
        by what_a_claim_settles_is_seen_by_others_as_its_kind_says because "[false, false, true, true], not";
    a_claim_that_keeps_what_it_gave_back_is_caught: GivesNothingBack
        by a_claim_that_gives_all_of_it_back_holds_nothing because "[true, true, true], not [false, false, false]";
    a_claim_that_says_a_renewal_put_off_its_end_and_did_not_is_caught: RenewsInVain
        by renewing_puts_off_the_end_of_a_claim because "ends no later";
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
