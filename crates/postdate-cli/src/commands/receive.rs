//! `receive`: messages out of a queue, completed only after they were written.

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use postdate::{Address, QueuedMessage, Queues, ReceiveClaim, ReceivedBatch, Receiver, Selection};

use crate::{
    cli::{Options, ReceiveArgs},
    exit::{Exit, Failure},
    output::{Format, Output, escape::escape_bytes, json},
    session::Transport,
    signals::Signals,
};

/// So many are taken at once: what a crash may show a second time.
const AT_ONCE: usize = 64;

/// A reader that is slower than this must not cost us the hold on what it has yet to read.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

pub(crate) async fn run(args: &ReceiveArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    // Ending in order gives back at once what was taken and not written.
    let mut signals = Signals::listen()?;
    let transport = Transport::prepare(options).await?;
    let receiver = receiver(transport.queues()?, &args.queue, output).await?;
    let mut left = args.count.map_or(usize::MAX, NonZeroUsize::get);
    while let Some(limit) = NonZeroUsize::new(left.min(AT_ONCE)) {
        let selection = Selection::Next(limit);
        let batch = tokio::select! {
            biased;
            () = signals.next() => break,
            batch = receiver.try_receive(&selection) => batch?,
        };
        if !batch.messages.is_empty() {
            left -= hand_over(batch, output).await?;
        } else if !args.follow {
            break;
        } else {
            tokio::select! {
                () = receiver.changed() => {}
                () = signals.next() => break,
            }
        }
    }
    Ok(Exit::Ok)
}

async fn receiver(
    queues: &Arc<dyn Queues>,
    queue: &Address,
    output: &Output,
) -> Result<Arc<dyn Receiver>, Failure> {
    if queues.create(queue).await? {
        output.note(&format!("created the queue {queue}"));
    }
    Ok(queues.receiver(queue).await?)
}

/// Writes messages and completes those that reached the reader, also when it goes away in their midst.
async fn hand_over(batch: ReceivedBatch, output: &Output) -> Result<usize, Failure> {
    let ReceivedBatch { messages, mut claim } = batch;
    let mut settled = Instant::now();
    let mut written = Vec::with_capacity(messages.len());
    for (n, message) in messages.iter().enumerate() {
        if let Err(error) = write(message, output.format()) {
            complete(claim.as_mut(), &written, output).await?;
            // Dropping the claim would do, but nobody would wait for it: the program ends here.
            let unread: Vec<u64> = messages[n..].iter().map(|message| message.position).collect();
            claim.abandon(&unread).await?;
            return Err(error.into());
        }
        written.push(message.position);
        if settled.elapsed() >= SETTLE_AFTER {
            complete(claim.as_mut(), &written, output).await?;
            claim.renew().await?;
            written.clear();
            settled = Instant::now();
        }
    }
    complete(claim.as_mut(), &written, output).await?;
    Ok(messages.len())
}

async fn complete(claim: &mut dyn ReceiveClaim, written: &[u64], output: &Output) -> Result<(), Failure> {
    let held = claim.complete(written).await?;
    let lost = held.iter().filter(|held| !**held).count();
    if lost > 0 {
        output.alarm(&format!("the reader was too slow: {lost} messages may be received a second time"));
    }
    Ok(())
}

fn write(message: &QueuedMessage, format: Format) -> io::Result<()> {
    let mut line = match format {
        Format::Human => escape_bytes(&message.message.body).into_bytes(),
        Format::Json => serde_json::to_vec(&json::Queued::from(message))?,
    };
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
