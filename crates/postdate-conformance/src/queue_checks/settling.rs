//! Completing, giving back and moving what was received.

use std::time::Duration;

use anyhow::{Result, ensure};
use postdate_core::{ReceivedBatch, Selection, StoreErrorKind};
use tokio::time::sleep;

use crate::{
    bench::Bench,
    drive::{depth, empty, hold_all, names, nothing_to_receive, positions, receive, refused},
    harness::{checks, ensure_eq},
    make::{address, billing, limit, sends},
    patience::Patience,
};

checks! {
    async fn a_completed_message_is_gone(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(2)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 1).await?;
        ensure_eq!(claim.complete(&positions(&messages)).await?, [true]);
        drop(claim);
        let rest = empty(&*receiver, 1, Patience::with("the other message")).await?;
        ensure_eq!(names(&rest), ["m00001"]);
        Ok(())
    }

    async fn what_is_not_held_is_not_settled(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(3)).await?;
        queues.create(&address("audit")).await?;
        let mut first = receive(&*receiver, 1).await?;
        let second = receive(&*receiver, 1).await?;
        let (own, others) = (first.messages[0].position, second.messages[0].position);
        let none = others + 1_000_000;
        ensure_eq!(first.claim.complete(&[none, others, own]).await?, [false, false, true]);
        ensure_eq!(first.claim.complete(&[own]).await?, [false]);
        ensure_eq!(first.claim.abandon(&[none, others, own]).await?, [false; 3]);
        ensure_eq!(first.claim.move_to(&[none, others, own], &address("audit")).await?, [false; 3]);
        drop((first, second));
        let rest = empty(&*receiver, 2, Patience::with("the other messages")).await?;
        ensure_eq!(names(&rest), ["m00001", "m00002"]);
        nothing_to_receive(&*queues.receiver(&address("audit")).await?).await
    }

    async fn an_abandoned_message_is_first_again(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(4)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 3).await?;
        ensure_eq!(messages.len(), 3);
        let all = positions(&messages);
        ensure_eq!(claim.abandon(&[all[1]]).await?, [true]);
        let again = receive(&*receiver, 1).await?;
        ensure_eq!(again.messages[0].position, all[1]);
        drop((claim, again));
        let came = empty(&*receiver, 4, Patience::with("what was given back")).await?;
        ensure_eq!(names(&came), ["m00000", "m00001", "m00002", "m00003"]);
        Ok(())
    }

    async fn a_dropped_receive_claim_gives_its_messages_back_in_order(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(5)).await?;
        for _ in 0..3 {
            let patience = Patience::with("what a dropped claim held to be first again");
            let mut batch = receive(&*receiver, 3).await?;
            while batch.messages[0].message.id.as_str() != "m00000" {
                drop(batch);
                patience.a_moment().await?;
                batch = receive(&*receiver, 3).await?;
            }
            ensure!(batch.messages.is_sorted_by_key(|queued| queued.position));
        }
        Ok(())
    }

    async fn a_message_can_be_moved_to_another_queue(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(3)).await?;
        let error = address("error");
        queues.create(&error).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 2).await?;
        let [first, second] = [messages[0].position, messages[1].position];
        ensure_eq!(claim.move_to(&[first, first, second], &error).await?, [true, false, true]);
        ensure!(
            claim.complete(&positions(&messages)).await? == [false, false],
            "what was moved is held still"
        );
        drop(claim);
        let moved = empty(&*queues.receiver(&error).await?, 2, Patience::with("what was moved")).await?;
        for (before, after) in messages.iter().zip(&moved) {
            ensure_eq!(after.message.destination, error);
            ensure_eq!(
                (&after.message.id, &after.message.headers),
                (&before.message.id, &before.message.headers)
            );
            ensure!(after.message.body == before.message.body && after.position != before.position);
        }
        let rest = empty(&*receiver, 1, Patience::with("the other message")).await?;
        ensure_eq!(names(&rest), ["m00002"]);
        Ok(())
    }

    async fn moving_to_a_queue_that_is_not_there_moves_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(2)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 2).await?;
        let held = positions(&messages);
        refused(claim.move_to(&held, &address("nowhere")).await, StoreErrorKind::NoSuchQueue)?;
        nothing_to_receive(&*receiver).await?;
        ensure!(claim.complete(&held).await? == vec![true; held.len()], "the claim was lost");
        ensure!(queues.list().await?.len() == 1, "the missing queue was created");
        Ok(())
    }

    async fn a_message_moved_to_its_own_queue_stands_last_as_if_it_were_new(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(3)).await?;
        drop(receive(&*receiver, 1).await?);
        let patience = Patience::with("what was given back");
        let ReceivedBatch { messages, mut claim } = hold_all(&*receiver, 3, patience).await?;
        let held = positions(&messages);
        ensure_eq!(claim.move_to(&held[..1], &billing()).await?, [true]);
        ensure_eq!(claim.abandon(&held).await?, [false, true, true]);
        let came = empty(&*receiver, 3, Patience::with("all messages")).await?;
        ensure_eq!(names(&came), ["m00001", "m00002", "m00000"]);
        ensure!(came[2].position > held[2] && came[2].message == messages[0].message);
        ensure_eq!(came[2].deliveries, 0);
        Ok(())
    }

    async fn messages_given_back_by_several_claims_come_in_the_old_order(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(8)).await?;
        let other = bench.queues().await?.receiver(&billing()).await?;
        let mut batches = Vec::new();
        for i in 0..4 {
            batches.push(receive(if i % 2 == 0 { &*receiver } else { &*other }, 2).await?);
        }
        for (claim, first) in [(2, 0), (0, 1), (3, 1), (1, 0), (1, 1), (0, 0)] {
            let held = positions(&batches[claim].messages);
            ensure_eq!(batches[claim].claim.abandon(&held[first..=first]).await?, [true]);
        }
        // m00005 and m00006 are held still.
        let came = receive(&*other, 100).await?;
        ensure_eq!(names(&came.messages), ["m00000", "m00001", "m00002", "m00003", "m00004", "m00007"]);
        Ok(())
    }

    async fn a_position_is_answered_once_wherever_it_is_named_again(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(3)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 3).await?;
        let [a, b, c] = [0, 1, 2].map(|i| messages[i].position);
        ensure_eq!(claim.complete(&[b, a, b, a]).await?, [true, true, false, false]);
        ensure_eq!(claim.abandon(&[a, c, c]).await?, [false, true, false]);
        let rest = empty(&*receiver, 1, Patience::with("what was given back")).await?;
        ensure_eq!(names(&rest), ["m00002"]);
        Ok(())
    }

    async fn positions_that_never_were_are_answered_false_and_harm_nothing(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(2)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 2).await?;
        let none = [0, u64::MAX, i64::MAX as u64, i64::MAX as u64 + 1, messages[1].position + 1_000];
        ensure_eq!(claim.complete(&none).await?, [false; 5]);
        ensure_eq!(claim.abandon(&none).await?, [false; 5]);
        ensure_eq!(claim.move_to(&none, &billing()).await?, [false; 5]);
        claim.renew().await?;
        nothing_to_receive(&*receiver).await?;
        ensure_eq!(claim.complete(&positions(&messages)).await?, [true, true]);
        ensure_eq!(depth(&*queues, &billing()).await?, 0);
        Ok(())
    }

    async fn settling_nothing_is_answered_with_nothing(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(1)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 1).await?;
        ensure!(claim.complete(&[]).await?.is_empty());
        ensure!(claim.abandon(&[]).await?.is_empty());
        ensure!(claim.move_to(&[], &billing()).await?.is_empty());
        ensure_eq!(claim.complete(&positions(&messages)).await?, [true]);
        // Nothing is left to hold on to, and nothing was lost.
        claim.renew().await?;
        let mut nothing = receiver.try_receive(&Selection::Next(limit(1))).await?;
        nothing.claim.renew().await?;
        Ok(())
    }

    async fn a_claim_that_has_settled_a_part_holds_the_rest(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(4)).await?;
        let audit = address("audit");
        queues.create(&audit).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 4).await?;
        let held = positions(&messages);
        ensure_eq!(claim.complete(&held[..1]).await?, [true]);
        ensure_eq!(claim.move_to(&held[1..2], &audit).await?, [true]);
        ensure_eq!(claim.abandon(&held[2..3]).await?, [true]);
        let mut other = receive(&*receiver, 4).await?;
        ensure_eq!(names(&other.messages), ["m00002"]);
        claim.renew().await?;
        ensure_eq!(claim.complete(&held).await?, [false, false, false, true]);
        ensure_eq!(other.claim.complete(&positions(&other.messages)).await?, [true]);
        ensure_eq!((depth(&*queues, &billing()).await?, depth(&*queues, &audit).await?), (0, 1));
        Ok(())
    }

    async fn a_renewed_receive_claim_holds_on(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(1)).await?;
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 1).await?;
        claim.renew().await?;
        nothing_to_receive(&*receiver).await?;
        ensure_eq!(claim.complete(&positions(&messages)).await?, [true]);
        Ok(())
    }

    async fn a_receive_claim_says_when_it_ends_and_renewing_puts_that_off(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(2)).await?;
        let asked = std::time::Instant::now();
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 2).await?;
        let before = claim.expires();
        ensure!(before.is_none_or(|end| end > asked), "it ended before it was taken");
        ensure_eq!(claim.complete(&positions(&messages)[..1]).await?, [true]);
        sleep(Duration::from_millis(20)).await;
        claim.renew().await?;
        let after = claim.expires();
        let is_put_off = before.zip(after).is_none_or(|(before, after)| before < after);
        ensure!(before.is_some() == after.is_some() && is_put_off, "renewed, it ends at {after:?}, not {before:?}");
        Ok(())
    }

    async fn a_receive_claim_says_by_the_clock_of_the_queue_when_it_was_given(bench: &Bench) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(100);
        let (_queues, receiver) = bench.filled(&sends(1)).await?;
        let mut last = None;
        for _ in 0..2 {
            sleep(PAUSE).await;
            let ReceivedBatch { messages, mut claim } = receive(&*receiver, 1).await?;
            let Some(received) = claim.received() else { return bench.unmet("needs queues that say when they gave") };
            // A clock of the wall may be set a little meanwhile.
            let earliest = last.unwrap_or(messages[0].enqueued).saturating_add(PAUSE / 2)?;
            ensure!(received >= earliest, "given at {received}, and not before {earliest}");
            claim.abandon(&positions(&messages)).await?;
            last = Some(received);
        }
        Ok(())
    }

    #[needs(Leases)]
    async fn a_lost_receive_claim_is_not_renewed(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(1)).await?;
        let mut lost = receive(&*receiver, 1).await?;
        let patience = Patience::with("the lease to end").longer_by(bench.lease_term());
        let mut taken = receiver.try_receive(&Selection::Next(limit(1))).await?;
        while taken.messages.is_empty() {
            patience.a_moment().await?;
            taken = receiver.try_receive(&Selection::Next(limit(1))).await?;
        }
        refused(lost.claim.renew().await, StoreErrorKind::ClaimLost)?;
        ensure_eq!(taken.claim.complete(&positions(&taken.messages)).await?, [true]);
        Ok(())
    }
}
