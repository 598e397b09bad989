//! The simulation is tested too: each of these mistakes is found, within so many seeds.

use crate::{faults::Planted, run::run};

/// Runs seeds until the mistake is found by one of the promises that it breaks.
#[track_caller]
fn is_found(planted: Planted, within: u64) {
    for seed in 0..within {
        let found = run(seed, Some(planted), false).violations;
        if let Some(first) = found.first() {
            let breaks = planted.breaks();
            assert!(breaks.contains(&first.promise), "seed {seed} finds {first} instead of {breaks:?}");
            return;
        }
    }
    panic!("{planted:?} is not found within {within} seeds");
}

#[test]
fn removing_before_sending_is_found() {
    is_found(Planted::RemoveThenSend, 3);
}

#[test]
fn poison_without_back_off_is_found() {
    is_found(Planted::PoisonWithoutBackOff, 60);
}

#[test]
fn an_acknowledgement_before_the_commit_is_found() {
    is_found(Planted::AckBeforeCommit, 3);
}

#[test]
fn no_wake_up_and_no_cap_is_found() {
    is_found(Planted::NoWakeAndNoCap, 5);
}

#[test]
fn the_clock_of_a_client_is_found() {
    is_found(Planted::ClientClock, 60);
}

#[test]
fn a_next_due_time_that_counts_what_is_claimed_is_found() {
    is_found(Planted::NextDueCountsClaimed, 30);
}

#[test]
fn a_watermark_is_found() {
    is_found(Planted::Watermark, 30);
}

#[test]
fn an_outage_that_burns_retries_is_found() {
    is_found(Planted::OutageBurnsRetries, 120);
}

#[test]
fn an_error_path_that_removes_first_is_found() {
    is_found(Planted::ErrorPathRemovesFirst, 40);
}

#[test]
fn a_missing_fence_is_found() {
    is_found(Planted::NoFence, 1_000);
}

#[test]
fn an_uncapped_sleep_is_found() {
    is_found(Planted::UncappedSleep, 100);
}

#[test]
fn completing_before_storing_is_found() {
    is_found(Planted::CompleteBeforeStore, 20);
}

#[test]
fn a_store_outage_that_goes_to_the_error_queue_is_found() {
    is_found(Planted::StoreOutageIsRefusal, 60);
}

#[test]
fn a_poison_that_takes_its_batch_with_it_is_found() {
    is_found(Planted::PoisonTakesItsBatch, 200);
}

#[test]
fn locks_that_are_not_renewed_are_found() {
    is_found(Planted::LocksNotRenewed, 200);
}

#[test]
fn a_delay_by_the_clock_of_the_process_is_found() {
    is_found(Planted::DelayByTheClockOfTheProcess, 60);
}

#[test]
fn sending_outside_the_transaction_is_found() {
    is_found(Planted::SendOutsideTransaction, 50);
}

#[test]
fn a_wait_by_the_clock_of_a_process_is_found() {
    is_found(Planted::WaitByProcessClock, 100);
}

#[test]
fn a_loss_that_a_renewal_does_not_notice_is_found() {
    is_found(Planted::UnnoticedLoss, 600);
}

#[test]
fn a_claim_that_is_not_renewed_is_found() {
    is_found(Planted::NoRenewal, 300);
}

#[test]
fn a_claim_that_gives_nothing_back_is_found() {
    is_found(Planted::NothingGivenBack, 100);
}

#[test]
fn cancelling_what_is_held_is_found() {
    is_found(Planted::CancelHeld, 100);
}

#[test]
fn a_store_that_is_not_idempotent_is_found() {
    is_found(Planted::NotIdempotent, 100);
}

#[test]
fn the_loss_of_headers_is_found() {
    is_found(Planted::HeadersLost, 3);
}

#[test]
fn a_failure_that_is_not_counted_is_found() {
    is_found(Planted::FailureNotCounted, 100);
}

#[test]
fn a_clock_that_never_goes_back_is_found() {
    is_found(Planted::ClockNeverGoesBack, 100);
}

#[test]
fn sending_what_is_too_late_is_found() {
    is_found(Planted::LatenessIgnored, 100);
}

#[test]
fn a_dropped_transaction_that_forgets_is_found() {
    is_found(Planted::DropForgets, 200);
}

#[test]
fn one_retry_too_many_is_found() {
    is_found(Planted::OneRetryTooMany, 100);
}
