//! No body and no header value in `Debug` output or in errors (S23).

use std::{error::Error, fmt::Debug};

use anyhow::{Context as _, Result, ensure};
use postdate_core::{EncodedHeaders, OutgoingMessage, ReceivedBatch};

use crate::{
    bench::{Bench, GREATEST},
    drive::{positions, receive},
    harness::checks,
    make::{address, billing, id, limit},
};

/// In every body, header value and unreadable header blob of these checks.
const SECRET: &str = "s3cr3t-c4n4ry";

checks! {
    async fn no_debug_output_of_queues_shows_a_body_or_a_header_value(bench: &Bench) -> Result<()> {
        let all = secret_sends();
        let (queues, receiver) = bench.filled(&all).await?;
        let dispatcher = queues.dispatcher();
        let seen = queues.browse(&billing(), 0, limit(10)).await?;
        let batch = receive(&*receiver, 2).await?;
        let things: [&dyn Debug; 7] =
            [&all, &seen, &batch, &batch.claim, &receiver, &dispatcher, &queues];
        things.iter().try_for_each(|thing| keeps_secret(&format!("{thing:?} {thing:#?}")))
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
            says_no_secret(&outcome.err().context("what should be refused was sent")?)?;
        }
        let ReceivedBatch { messages, mut claim } = receive(&*receiver, 2).await?;
        let unmoved = claim.move_to(&positions(&messages), &nowhere).await;
        says_no_secret(&unmoved.err().context("moved to a queue that is not there")?)?;
        Ok(())
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

/// Neither itself nor what it was caused by.
fn says_no_secret(error: &(dyn Error + 'static)) -> Result<()> {
    let mut next = Some(error);
    while let Some(error) = next {
        keeps_secret(&format!("{error} {error:?} {error:#?}"))?;
        next = error.source();
    }
    Ok(())
}

fn keeps_secret(text: &str) -> Result<()> {
    // Bytes may be shown as text or as numbers.
    let numbers = SECRET.bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(", ");
    let shows = [SECRET, &numbers].iter().any(|secret| text.contains(*secret));
    ensure!(!shows, "a body or a header value is shown: {}", text.replace(SECRET, "***"));
    Ok(())
}
