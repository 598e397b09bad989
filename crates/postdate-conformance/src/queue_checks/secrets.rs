//! No body and no header value in `Debug` output or in errors (S23).

use anyhow::Result;
use postdate_core::{EncodedHeaders, OutgoingMessage, ReceivedBatch};

use crate::{
    bench::{Bench, GREATEST},
    canary::{SECRET, says_nothing, shows_nothing},
    drive::{positions, receive},
    harness::checks,
    make::{address, billing, id, limit},
};

checks! {
    async fn no_debug_output_of_queues_shows_a_body_or_a_header_value(bench: &Bench) -> Result<()> {
        let all = secret_sends();
        let (queues, receiver) = bench.filled(&all).await?;
        let dispatcher = queues.dispatcher();
        let seen = queues.browse(&billing(), 0, limit(10)).await?;
        let batch = receive(&*receiver, 2).await?;
        shows_nothing("a message to send", &all)?;
        shows_nothing("a message in a queue", &seen)?;
        shows_nothing("a batch", &batch)?;
        shows_nothing("a claim", &batch.claim)?;
        shows_nothing("a receiver", &receiver)?;
        shows_nothing("a dispatcher", &dispatcher)?;
        shows_nothing("the handle on the queues", &queues)
    }

    async fn no_error_of_queues_shows_a_body_or_a_header_value(bench: &Bench) -> Result<()> {
        let (queues, receiver) = bench.filled(&secret_sends()).await?;
        let nowhere = address("nowhere");
        let mut refused = secret_sends();
        refused.iter_mut().for_each(|message| message.destination = nowhere.clone());
        if queues.max_message_bytes() < GREATEST {
            let mut body = SECRET.as_bytes().to_vec();
            body.resize(queues.max_message_bytes() + 1, 0);
            refused.push(OutgoingMessage { body: body.into(), destination: billing(), ..refused[0].clone() });
        }
        for outcome in queues.dispatcher().dispatch(&refused, None).await {
            says_nothing("a refused message", outcome)?;
        }
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 2).await?;
        says_nothing("a move to nowhere", claim.move_to(&positions(&messages), &nowhere).await)
    }
}

fn secret_sends() -> Vec<OutgoingMessage> {
    let headers = format!(r#"{{"token":"{SECRET}"}}"#);
    [headers, SECRET.to_owned()]
        .into_iter()
        .enumerate()
        .map(|(i, headers)| OutgoingMessage {
            id: id(format!("m{i}")),
            destination: billing(),
            headers: EncodedHeaders::from_bytes(headers),
            body: SECRET.into(),
        })
        .collect()
}
