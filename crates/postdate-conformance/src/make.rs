//! Messages for checks.

use std::{num::NonZeroUsize, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use postdate_core::{
    Address, DelayedMessage, Due, EncodedHeaders, EndpointName, Message, MessageId, OutgoingMessage,
};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn limit(limit: usize) -> NonZeroUsize {
    NonZeroUsize::new(limit).expect("checks write limits above zero")
}

pub(crate) fn id(text: impl AsRef<str>) -> MessageId {
    MessageId::new(text).expect("checks write ids that are valid")
}

pub(crate) fn address(text: impl AsRef<str>) -> Address {
    Address::new(text).expect("checks write addresses that are valid")
}

/// The usual endpoint.
pub(crate) fn endpoint() -> EndpointName {
    EndpointName::new("conformance").expect("the text is a valid name")
}

/// The usual destination.
pub(crate) fn billing() -> Address {
    address("billing")
}

/// A time that is past everywhere, so many minutes after the beginning of 2020. Whole minutes are the same in
/// every resolution.
pub(crate) fn long_ago(minutes: usize) -> Due {
    const BEGIN_OF_2020: Timestamp = Timestamp::constant(1_577_836_800, 0);
    let after = Duration::from_secs(60 * minutes as u64);
    Due::At(BEGIN_OF_2020.checked_add(after).expect("checks count few minutes"))
}

/// A message for the usual destination; its content is made from its id.
pub(crate) fn message(id: impl AsRef<str>, due: Due) -> DelayedMessage {
    message_for(id, &billing(), due)
}

pub(crate) fn message_for(id: impl AsRef<str>, destination: &Address, due: Due) -> DelayedMessage {
    let body = format!("body of {}", id.as_ref());
    Message::new(body).id(self::id(&id)).header("about", id.as_ref()).to(destination.clone(), due)
}

pub(crate) fn with_body(id: impl AsRef<str>, body: impl Into<Bytes>) -> DelayedMessage {
    Message::new(body).id(self::id(id)).to(billing(), long_ago(0))
}

/// Messages that are due, in the order of their due times and of their ids.
pub(crate) fn many(count: usize) -> Vec<DelayedMessage> {
    (0..count).map(|i| message(format!("m{i:05}"), long_ago(i))).collect()
}

/// Messages for the usual queue.
pub(crate) fn sends(count: usize) -> Vec<OutgoingMessage> {
    many(count).into_iter().map(|delayed| delayed.message).collect()
}

/// Messages for the usual queue with headers and bodies that a careless backend changes or runs.
pub(crate) fn hostile_sends() -> Vec<OutgoingMessage> {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let headers: [&[u8]; 7] = [
        b"",
        br#"{ "a" : "2" }"#,
        b"<headers/>",
        b"\0\xff\xfe",
        "{\"ä\":\"'\"}".as_bytes(),
        br#"{"a":"1","A":"2","a":"3"}"#,
        b"'); DROP TABLE queue_message; --",
    ];
    let bodies = [
        vec![],
        vec![0],
        every_byte,
        "ä€\u{1f4e6}\r\n'".into(),
        vec![7; 1 << 20],
        b"\xef\xbb\xbf \r\n ".to_vec(),
        b"%s{0}$1?\\".to_vec(),
    ];
    let message = |(i, (headers, body)): (usize, (&[u8], Vec<u8>))| {
        let mut message = with_body(format!("'m%{i}_ ä"), body).message;
        message.headers = EncodedHeaders::from_bytes(headers.to_vec());
        message
    };
    headers.into_iter().zip(bodies).enumerate().map(message).collect()
}

/// The ids of messages that are to be stored.
pub(crate) fn ids(messages: &[DelayedMessage]) -> Vec<MessageId> {
    messages.iter().map(|delayed| delayed.message.id.clone()).collect()
}

/// Names that a careless backend confuses, trims, folds or runs.
pub(crate) const HOSTILE_NAMES: [&str; 14] = [
    "orders",
    "Orders",
    "ORDERS",
    "orders ",
    " orders",
    "orders.retries",
    "orders_retries",
    "orders%",
    "o'rders",
    "\"orders\"; DROP TABLE orders; --",
    "[orders]",
    "ördärs",
    "o\u{308}rda\u{308}rs",
    "..\\../orders/\u{1f4e6}",
];
