//! `send`: a message into the store, or into a queue by way of the store.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use jiff::Timestamp;
use postdate::{Address, DelayedMessageStoreExt as _, Dispatching, Message};
use serde::Serialize;

use crate::{
    cli::{BodyArgs, Options, SendArgs},
    exit::{Exit, Failure},
    output::{Output, Report, escape::escape, time::with_relative},
    session::Session,
};

#[derive(Serialize)]
struct Sent {
    id: String,
    queue: String,
    due: Timestamp,
    queue_exists: Option<bool>,
}

pub(crate) async fn run(args: SendArgs, options: &Options, output: &Output) -> Result<Exit, Failure> {
    let session = Session::prepare(options).await?;
    let body = body(args.body, session.backend.capabilities().max_message_bytes)?;
    let mut message = Message::new(body);
    for (key, value) in args.headers {
        message = message.header(key, value);
    }
    if let Some(id) = args.id {
        message = message.id(id);
    }
    let message = message.to(args.queue.clone(), args.due.due());
    let id = message.message.id.clone();
    let store = session.store().await?;
    let due = store.store_one(message).await?;
    store.flush().await;

    let queue_exists = session.transport.has_queue(&args.queue).await?;
    output.print(&Sent { id: id.to_string(), queue: args.queue.to_string(), due, queue_exists })?;
    if queue_exists == Some(false) {
        output.note(&missing(&args.queue));
    }
    if session.backend.dispatching(&session.endpoint).await? == Dispatching::Nobody {
        output.note("nobody delivers for this endpoint at the moment: postdate run");
    }
    Ok(Exit::Ok)
}

/// What to say about a queue that is not there yet.
pub(crate) fn missing(queue: &Address) -> String {
    format!(
        "there is no queue {queue} yet; without one the message goes to the error queue when it is due: \
         postdate queue create {}",
        shell_word(queue.as_str())
    )
}

fn body(args: BodyArgs, limit: usize) -> Result<Vec<u8>, Failure> {
    let Some(path) = args.body_file else { return Ok(args.body.unwrap_or_default().into_bytes()) };
    let standard_input = path == Path::new("-");
    // One byte more than is allowed is enough for the store to refuse it.
    let limit = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut body = Vec::new();
    let read = if standard_input {
        io::stdin().lock().take(limit).read_to_end(&mut body)
    } else {
        File::open(&path).and_then(|file| file.take(limit).read_to_end(&mut body))
    };
    match read {
        Ok(_) => Ok(body),
        Err(error) => Err(Failure::usage(format!(
            "cannot read the body from {}: {error}; give a file that can be read, or - for standard input",
            path.display()
        ))),
    }
}

fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@/:".contains(c);
    if text.chars().all(plain) && !text.starts_with('-') {
        return text.to_owned();
    }
    format!("{}'{}'", if text.starts_with('-') { "-- " } else { "" }, text.replace('\'', r"'\''"))
}

impl Report for Sent {
    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}  due {}", escape(&self.id), with_relative(self.due, Timestamp::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_copy_is_safe_to_copy() {
        for (name, word) in [
            ("billing", "billing"),
            ("a b", "'a b'"),
            ("x;reboot", "'x;reboot'"),
            ("it's", r"'it'\''s'"),
            ("-x", "-- '-x'"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }
}
