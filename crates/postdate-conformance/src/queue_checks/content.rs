//! What messages carry and how they are called (S22).

use std::num::NonZeroUsize;

use anyhow::{Result, ensure};
use postdate_core::{Address, Due, Message, MessageId, Selection};

use crate::{
    bench::Bench,
    drive::{complete, depth, empty, move_all, names, receive, send},
    harness::{checks, ensure_eq},
    make::{HOSTILE_NAMES, address, hostile_sends, id, long_ago, message},
    patience::Patience,
};

checks! {
    async fn a_sent_message_arrives_byte_for_byte(bench: &Bench) -> Result<()> {
        let all = hostile_sends();
        let (_queues, receiver) = bench.filled(&all).await?;
        let came = empty(&*receiver, all.len(), Patience::with("what was sent")).await?;
        for (sent, came) in all.iter().zip(&came) {
            ensure!(came.message == *sent, "{:?} came as {:?}", sent, came.message);
            ensure_eq!(came.deliveries, 0);
        }
        Ok(())
    }

    async fn a_browsed_and_a_moved_message_are_the_same_byte_for_byte(bench: &Bench) -> Result<()> {
        let all = hostile_sends();
        let (queues, receiver) = bench.filled(&all).await?;
        let error = address("error");
        queues.create(&error).await?;
        move_all(&*receiver, all.len(), &error).await?;
        let seen = queues.browse(&error, 0, NonZeroUsize::MAX).await?;
        let came = empty(&*queues.receiver(&error).await?, all.len(), Patience::with("what was moved")).await?;
        ensure!(seen == came, "browsing showed other messages than came");
        for (sent, came) in all.iter().zip(&came) {
            let same = (&came.message.id, &came.message.headers, &came.message.body)
                == (&sent.id, &sent.headers, &sent.body);
            ensure!(same, "{:?} was moved as {:?}", sent, came.message);
            ensure_eq!(came.message.destination, error);
        }
        Ok(())
    }

    async fn queues_of_similar_names_are_different(bench: &Bench) -> Result<()> {
        let queues = bench.queues().await?;
        let names = HOSTILE_NAMES.map(address);
        for name in &names {
            ensure!(queues.create(name).await?, "{name:?} is there already");
            let message = Message::new(name.to_string()).to(name.clone(), Due::NOW).message;
            send(&*queues, &[message]).await?;
        }
        for name in &names {
            ensure!(depth(&*queues, name).await? == 1, "{name:?}");
            let batch = receive(&*queues.receiver(name).await?, 10).await?;
            let bodies: Vec<_> = batch.messages.iter().map(|queued| &queued.message.body).collect();
            ensure!(bodies == [name.as_str()], "{name:?}: {bodies:?}");
        }
        Ok(())
    }

    async fn messages_of_similar_ids_are_different(bench: &Bench) -> Result<()> {
        let all = HOSTILE_NAMES.map(|name| message(name, long_ago(0)).message);
        let (_queues, receiver) = bench.filled(&all).await?;
        for sent in &all {
            let batch = receiver.try_receive(&Selection::Ids(vec![sent.id.clone()])).await?;
            ensure_eq!(names(&batch.messages), [sent.id.as_str()]);
            ensure!(batch.messages[0].message == *sent, "{:?}", batch.messages);
            complete(batch).await?;
        }
        Ok(())
    }

    async fn the_longest_names_are_taken_whole(bench: &Bench) -> Result<()> {
        // The ends differ: a backend that cuts would confuse them. All are as long in bytes as names can be.
        let longest = |max: usize, end: &str| format!("{}{end}", "\u{1f4e6}".repeat(max - 1));
        let queues = bench.queues().await?;
        for end in ["a", "b"] {
            let queue = address(longest(Address::MAX_CHARS, end));
            ensure!(queues.create(&queue).await?, "the queue that ends with {end} is there already");
            let ids = ["a", "b"].map(|end| id(longest(MessageId::MAX_CHARS, end)));
            let of = |id: &MessageId| Message::new(end).id(id.clone()).to(queue.clone(), Due::NOW).message;
            send(&*queues, &[of(&ids[0]), of(&ids[1])]).await?;
            let receiver = queues.receiver(&queue).await?;
            let one = receiver.try_receive(&Selection::Ids(vec![ids[1].clone()])).await?;
            ensure!(one.messages.len() == 1 && one.messages[0].message == of(&ids[1]), "{:?}", one.messages);
        }
        Ok(())
    }
}
