//! Taking messages from queues.

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Result, ensure};
use postdate_core::{MessageId, ReceivedBatch, Receiver, Selection};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    drive::{complete, empty, names, nothing_to_receive, positions, receive},
    harness::{checks, ensure_eq},
    make::{HOUR, billing, id, limit, sends},
    patience::Patience,
};

const MESSAGES: usize = 500;

checks! {
    async fn a_received_message_is_hidden_from_other_receivers(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&sends(1)).await?;
        let second = queues.receiver(&billing()).await?;
        let third = bench.queues().await?.receiver(&billing()).await?;
        let batch = receive(&*receiver, 1).await?;
        for other in [&receiver, &second, &third] {
            nothing_to_receive(&**other).await?;
        }
        complete(batch).await?;
        nothing_to_receive(&*third).await
    }

    async fn no_more_messages_are_received_than_were_asked_for(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(6)).await?;
        let mut claims = Vec::new();
        for most in [1, 2, 3] {
            let batch = receive(&*receiver, most).await?;
            ensure!(batch.messages.len() == most, "{} of {most}", batch.messages.len());
            claims.push(batch.claim);
        }
        nothing_to_receive(&*receiver).await
    }

    async fn messages_can_be_received_by_their_ids(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(6)).await?;
        let wanted = Selection::Ids(["m00004", "never there", "m00001"].map(id).to_vec());
        let ReceivedBatch { messages, mut claim } = receiver.try_receive(&wanted).await?;
        ensure_eq!(names(&messages), ["m00001", "m00004"]);
        let again = receiver.try_receive(&wanted).await?;
        ensure!(again.messages.is_empty(), "received, but held: {:?}", again.messages);
        claim.complete(&positions(&messages)).await?;
        let rest = empty(&*receiver, 4, Patience::with("the others")).await?;
        ensure_eq!(names(&rest), ["m00000", "m00002", "m00003", "m00005"]);
        Ok(())
    }

    async fn deliveries_are_counted(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(1)).await?;
        for deliveries in 0..4 {
            let ReceivedBatch { messages, mut claim } = receive(&*receiver, 1).await?;
            ensure_eq!(messages[0].deliveries, deliveries);
            claim.abandon(&positions(&messages)).await?;
        }
        Ok(())
    }

    async fn competing_receivers_never_hold_the_same_message(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(MESSAGES)).await?;
        let other = bench.queues().await?.receiver(&billing()).await?;
        let completed = Arc::new(Mutex::new(BTreeSet::new()));
        let mut tasks = JoinSet::new();
        for i in 0..8 {
            tasks.spawn(compete([&receiver, &other][i % 2].clone(), Arc::clone(&completed), i));
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        nothing_to_receive(&*receiver).await
    }

    async fn an_id_selects_every_message_that_has_it_and_each_once(bench: &Bench) -> Result<()> {
        let [one, other] = [0, 1].map(|i| sends(2).swap_remove(i));
        let (_queues, receiver) = bench.filled(&[one.clone(), other.clone(), one.clone()]).await?;
        let none = receiver.try_receive(&Selection::Ids(vec![])).await?;
        ensure!(none.messages.is_empty(), "no id has selected {:?}", none.messages);
        let batch = receiver.try_receive(&Selection::Ids(vec![one.id.clone(), one.id.clone()])).await?;
        ensure_eq!(names(&batch.messages), ["m00000", "m00000"]);
        ensure!(batch.messages[0].position < batch.messages[1].position);
        ensure_eq!(names(&receive(&*receiver, 3).await?.messages), [other.id.as_str()]);
        Ok(())
    }

    async fn a_limit_beyond_all_bounds_takes_what_there_is(bench: &Bench) -> Result<()> {
        let (_queues, receiver) = bench.filled(&sends(5)).await?;
        let batch = receiver.try_receive(&Selection::Next(NonZeroUsize::MAX)).await?;
        ensure_eq!(batch.messages.len(), 5);
        Ok(())
    }
}

/// Receives until everything is completed; every fifth batch is given back.
async fn compete(
    receiver: Arc<dyn Receiver>,
    completed: Arc<Mutex<BTreeSet<MessageId>>>,
    first: usize,
) -> Result<()> {
    let patience = Patience::with("every message to be completed").longer_by(Some(HOUR));
    for turn in first.. {
        if completed.lock().unwrap_or_else(PoisonError::into_inner).len() == MESSAGES {
            break;
        }
        let ReceivedBatch { messages, mut claim } = receiver.try_receive(&Selection::Next(limit(7))).await?;
        if messages.is_empty() {
            patience.a_moment().await?;
        } else if turn % 5 == 0 {
            claim.abandon(&positions(&messages)).await?;
        } else {
            let answers = claim.complete(&positions(&messages)).await?;
            ensure!(
                answers.iter().all(|answer| *answer),
                "a message was lost to another receiver: {answers:?}"
            );
            let mut completed = completed.lock().unwrap_or_else(PoisonError::into_inner);
            for queued in messages {
                ensure!(completed.insert(queued.message.id.clone()), "{} came twice", queued.message.id);
            }
        }
    }
    Ok(())
}
