//! The messages: 1 KiB of body, 200 bytes of headers, for one queue.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use postdate_core::{Address, DelayedMessage, Due, Headers, Message};

/// The queue all messages go to.
pub(crate) const QUEUE: &str = "billing";

const BODY_BYTES: usize = 1_024;
const HEADER_BYTES: usize = 200;
/// So many different bodies are shared by all messages, so that making them does not fill the memory.
const BODIES: usize = 64;
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// When messages are due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dues {
    /// Some time within the last minute.
    Overdue,
    /// Some time within the year that begins in a year: never while a bench runs.
    FarAhead,
}

/// Makes messages; the same every time but for their ids.
#[derive(Debug)]
pub(crate) struct Workload {
    random: Random,
    bodies: Vec<Bytes>,
    filler: String,
}

impl Workload {
    pub(crate) fn new() -> Self {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let bodies = (0..BODIES).map(|_| random.text(BODY_BYTES).into()).collect();
        let empty: Headers = headers("").collect();
        let filler = random.text(HEADER_BYTES - empty.encode().len());
        Self { random, bodies, filler }
    }

    pub(crate) fn messages(&mut self, count: usize, dues: Dues) -> Vec<DelayedMessage> {
        let now = Timestamp::now();
        (0..count)
            .map(|i| {
                let due = match dues {
                    Dues::Overdue => now - self.random.up_to(Duration::from_secs(60)),
                    Dues::FarAhead => now + YEAR + self.random.up_to(YEAR),
                };
                self.message(i, due)
            })
            .collect()
    }

    pub(crate) fn message(&self, number: usize, due: Timestamp) -> DelayedMessage {
        let message = Message::new(self.bodies[number % BODIES].clone());
        let message = headers(&self.filler).fold(message, |message, (key, value)| message.header(key, value));
        message.to(queue(), Due::At(due))
    }
}

/// Deals messages out to producers, `batch` in each call. In turn: a message gets its id when it is sent, so those of
/// all producers mix.
pub(crate) fn deal(
    messages: &[DelayedMessage],
    producers: usize,
    batch: usize,
) -> Vec<Vec<Vec<DelayedMessage>>> {
    let mut shares = vec![Vec::new(); producers];
    for (call, messages) in messages.chunks(batch).enumerate() {
        shares[call % producers].push(messages.to_vec());
    }
    shares
}

pub(crate) fn queue() -> Address {
    Address::new(QUEUE).expect("the name is short and plain")
}

fn headers(filler: &str) -> impl Iterator<Item = (&str, &str)> {
    [("content-type", "application/json"), ("tenant", "acme"), ("trace", filler)].into_iter()
}

/// When a message of this workload is due.
pub(crate) fn due(message: &DelayedMessage) -> Timestamp {
    match message.due {
        Due::At(due) => due,
        Due::After(_) => unreachable!("the workload makes absolute due times only"),
    }
}

/// A small generator (xorshift), so that every run has the same messages.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn up_to(&mut self, longest: Duration) -> Duration {
        longest.mul_f64((self.next() >> 11) as f64 / (1_u64 << 53) as f64)
    }

    fn text(&mut self, chars: usize) -> String {
        const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
        (0..chars).map(|_| char::from(LETTERS[(self.next() >> 58) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_sizes_that_the_report_names() {
        for DelayedMessage { message, .. } in Workload::new().messages(100, Dues::Overdue) {
            assert_eq!(message.body.len(), BODY_BYTES);
            assert_eq!(message.headers.len(), HEADER_BYTES);
        }
    }

    #[test]
    fn all_messages_are_dealt_out_in_turn() {
        let messages = Workload::new().messages(10, Dues::Overdue);
        let shares = deal(&messages, 3, 2);
        assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(shares[1][1], messages[8..10]);
    }

    #[test]
    fn overdue_messages_are_due_and_those_far_ahead_are_not() {
        let now = Timestamp::now();
        let mut workload = Workload::new();
        assert!(workload.messages(100, Dues::Overdue).iter().all(|m| due(m) <= Timestamp::now()));
        assert!(workload.messages(100, Dues::FarAhead).iter().all(|m| due(m) > now));
    }
}
