//! The parts of the JSON output that several verbs share. Its fields are described in JSON.md and stay.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use postdate::{EncodedHeaders, MessageState, OutgoingMessage, QueuedMessage};
use serde::{Serialize, Serializer};

/// Bytes, as text where they are text: `{"text": ".."}` or `{"base64": ".."}`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Blob {
    Text(String),
    Base64(String),
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(BASE64_STANDARD.encode(bytes)),
        }
    }
}

/// Headers and body. Headers that cannot be read appear as they are, under another name.
#[derive(Debug, Serialize)]
pub(crate) struct Content {
    headers: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers_raw: Option<Blob>,
    body: Blob,
}

impl Content {
    pub(crate) fn of(message: &OutgoingMessage) -> Self {
        let (headers, headers_raw) = split(&message.headers);
        Self { headers, headers_raw, body: Blob::from(&message.body[..]) }
    }
}

/// A message in a queue.
#[derive(Debug, Serialize)]
pub(crate) struct Queued {
    id: String,
    queue: String,
    position: u64,
    enqueued: Timestamp,
    deliveries: u32,
    #[serde(flatten)]
    content: Content,
}

impl From<&QueuedMessage> for Queued {
    fn from(queued: &QueuedMessage) -> Self {
        Self {
            id: queued.message.id.to_string(),
            queue: queued.message.destination.to_string(),
            position: queued.position,
            enqueued: queued.enqueued,
            deliveries: queued.deliveries,
            content: Content::of(&queued.message),
        }
    }
}

/// The word for how a stored message stands.
pub(crate) fn state<S: Serializer>(state: &MessageState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match state {
        MessageState::Pending => "pending",
        MessageState::InFlight => "in_flight",
        _ => "other",
    })
}

fn split(headers: &EncodedHeaders) -> (Option<BTreeMap<String, String>>, Option<Blob>) {
    match headers.decode() {
        Ok(decoded) => {
            let map = decoded.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            (Some(map), None)
        }
        Err(_) => (None, Some(Blob::from(&headers.as_bytes()[..]))),
    }
}

#[cfg(test)]
mod tests {
    use postdate::{Address, Due, Message};

    use super::*;

    fn json(body: &'static [u8], headers: Option<&'static str>) -> serde_json::Value {
        let mut message = Message::new(body).to(Address::new("q").unwrap(), Due::NOW).message;
        if let Some(blob) = headers {
            message.headers = EncodedHeaders::from_bytes(blob);
        }
        serde_json::to_value(Content::of(&message)).unwrap()
    }

    #[test]
    fn a_body_is_text_or_base64() {
        assert_eq!(json(b"text", None)["body"], serde_json::json!({"text": "text"}));
        assert_eq!(json(b"\xff\x00", None)["body"], serde_json::json!({"base64": "/wA="}));
    }

    #[test]
    fn headers_that_cannot_be_read_are_shown_as_they_are() {
        assert_eq!(json(b"", Some(r#"{"a":"b"}"#))["headers"], serde_json::json!({"a": "b"}));
        let foreign = json(b"", Some("<xml/>"));
        assert_eq!(foreign["headers"], serde_json::Value::Null);
        assert_eq!(foreign["headers_raw"], serde_json::json!({"text": "<xml/>"}));
    }
}
