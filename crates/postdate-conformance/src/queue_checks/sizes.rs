//! The greatest that queues take, and more than that (S22).

use anyhow::{Result, ensure};
use postdate_core::{DispatchErrorKind, OutgoingMessage};

use crate::{
    bench::{Bench, GREATEST},
    drive::{depth, empty, names, send},
    harness::{checks, ensure_eq},
    make::{billing, sends},
    patience::Patience,
};

checks! {
    #[needs(QueueSizeLimit)]
    async fn a_message_over_the_limit_is_rejected_alone(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let mut batch = sends(3);
        batch[1] = of_size(queues.max_message_bytes() + 1);
        let outcomes = queues.dispatcher().dispatch(&batch, None).await;
        let refused: Vec<_> =
            outcomes.iter().map(|sent| sent.as_ref().err().map(|error| error.kind())).collect();
        ensure_eq!(refused, [None, Some(DispatchErrorKind::Rejected), None]);
        let came = empty(&*receiver, 2, Patience::with("the others of the batch")).await?;
        ensure_eq!(names(&came), ["m00000", "m00002"]);
        ensure_eq!(depth(&*queues, &billing()).await?, 0);
        Ok(())
    }

    #[needs(QueueSizeLimit)]
    async fn a_message_of_the_greatest_size_arrives(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let sent = of_size(queues.max_message_bytes());
        send(&*queues, std::slice::from_ref(&sent)).await?;
        let came = empty(&*receiver, 1, Patience::with("the greatest message")).await?;
        ensure!(came[0].message == sent, "another message came: {:?}", came[0]);
        Ok(())
    }

    #[needs(SizeLimit)]
    async fn queues_take_whatever_the_store_takes(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&[]).await?;
        let greatest = bench.capabilities()?.max_message_bytes;
        ensure!(greatest <= queues.max_message_bytes());
        send(&*queues, &[of_size(greatest)]).await?;
        empty(&*receiver, 1, Patience::with("the greatest message")).await?;
        Ok(())
    }

    async fn large_messages_are_received_all_if_not_at_once(bench: &Bench) -> Result<()> {
        const COUNT: usize = 24;
        let (queues, receiver) = bench.filled(&[]).await?;
        let size = queues.max_message_bytes().min(1 << 20);
        for _ in 0..COUNT {
            send(&*queues, &[of_size(size)]).await?;
        }
        let came = empty(&*receiver, COUNT, Patience::with("the large messages")).await?;
        ensure!(came.iter().all(|queued| queued.message.size() == size));
        Ok(())
    }
}

/// A message whose headers and body have so many bytes together.
fn of_size(bytes: usize) -> OutgoingMessage {
    debug_assert!(bytes <= GREATEST + 1);
    let mut message = sends(1).remove(0);
    message.body = vec![0x5a; bytes - message.headers.len()].into();
    message
}
