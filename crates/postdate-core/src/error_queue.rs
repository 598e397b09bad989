//! How a message looks in the error queue, and how it is brought back from there.
//!
//! The copy carries the original's id, body and headers, and beside them the reference's fault headers, so that
//! tools made for the reference understand it.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use jiff::{Timestamp, tz::TimeZone};

use crate::{Address, DueMessage, EncodedHeaders, EndpointName, Headers, OutgoingMessage, Reason};

/// The names of the fault headers.
pub mod header {
    /// The queue to which the message must go back to be tried again.
    pub const FAILED_QUEUE: &str = "NServiceBus.FailedQ";
    /// The kind of failure.
    pub const EXCEPTION_TYPE: &str = "NServiceBus.ExceptionInfo.ExceptionType";
    /// What went wrong.
    pub const EXCEPTION_MESSAGE: &str = "NServiceBus.ExceptionInfo.Message";
    /// What reported it.
    pub const EXCEPTION_SOURCE: &str = "NServiceBus.ExceptionInfo.Source";
    /// What went wrong and what caused it.
    pub const STACK_TRACE: &str = "NServiceBus.ExceptionInfo.StackTrace";
    /// When it failed for the last time.
    pub const TIME_OF_FAILURE: &str = "NServiceBus.TimeOfFailure";
    /// The endpoint that tried.
    pub const PROCESSING_ENDPOINT: &str = "NServiceBus.ProcessingEndpoint";
    /// The machine it runs on.
    pub const PROCESSING_MACHINE: &str = "NServiceBus.ProcessingMachine";
    /// Where the message was to go.
    pub const DESTINATION: &str = "NServiceBus.Timeouts.Properties.NServiceBus.Timeout.Destination";
    /// When it was due.
    pub const DUE: &str = "NServiceBus.Timeouts.Properties.NServiceBus.Timeout.Expire";
    /// How many attempts were made.
    pub const ATTEMPTS: &str = "postdate.Attempts";
    /// `retries-exhausted`, `no-destination`, `expired` or `not-storable`.
    pub const REASON: &str = "postdate.FailureReason";
    /// The original's headers in Base64, where those in the copy do not tell them byte for byte: they could not be
    /// read, were written otherwise than postdate would, or had names of faults among them.
    pub const ORIGINAL_HEADERS: &str = "postdate.OriginalHeaders";

    /// All of them.
    pub const ALL: [&str; 13] = [
        FAILED_QUEUE,
        EXCEPTION_TYPE,
        EXCEPTION_MESSAGE,
        EXCEPTION_SOURCE,
        STACK_TRACE,
        TIME_OF_FAILURE,
        PROCESSING_ENDPOINT,
        PROCESSING_MACHINE,
        DESTINATION,
        DUE,
        ATTEMPTS,
        REASON,
        ORIGINAL_HEADERS,
    ];
}

/// The reference cuts the message of an exception here; we cut the stack trace too, since error headers larger
/// than a queue takes kept messages from ever reaching the error queue.
const MAX_TEXT: usize = 16_384;
/// The reference's wire format, with a colon before the microseconds.
const WIRE_TIME: &str = "%Y-%m-%d %H:%M:%S:%6f Z";

/// Why and when a message failed.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub reason: Reason,
    pub attempts: u32,
    pub error: String,
    pub trace: String,
    pub at: Timestamp,
}

impl Fault {
    /// What the store keeps as the message's last error while the error queue cannot be reached.
    pub(crate) fn remember(&self) -> String {
        format!("{}: {}", self.reason.as_str(), self.error)
    }

    /// The reason and the error in what the store kept.
    pub(crate) fn recall(kept: &str) -> (Reason, &str) {
        let of = |reason: &Reason| kept.strip_prefix(reason.as_str())?.strip_prefix(": ");
        let recalled = Reason::ALL.iter().find_map(|reason| Some((*reason, of(reason)?)));
        recalled.unwrap_or((Reason::RetriesExhausted, kept))
    }
}

/// A message as it was before it failed, and what is known of the failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedMessage {
    /// The message with its own destination and headers.
    pub original: OutgoingMessage,
    /// When it was due.
    pub due: Timestamp,
    /// How many attempts were made.
    pub attempts: u32,
    /// `retries-exhausted`, `no-destination`, `expired` or `not-storable`.
    pub reason: String,
    /// What went wrong.
    pub error: String,
    /// When it failed for the last time.
    pub time_of_failure: Timestamp,
}

/// A message in the error queue was not put there by postdate, or its fault headers are damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {id} cannot be restored: {problem}")]
pub struct NotRestorable {
    id: crate::MessageId,
    problem: String,
}

/// The copy of `failed` that goes to `error_queue`.
pub(crate) fn copy(
    failed: &DueMessage,
    fault: &Fault,
    endpoint: &EndpointName,
    error_queue: &Address,
) -> OutgoingMessage {
    let original = &failed.message;
    let mut headers = carried(&original.headers);
    let machine = gethostname::gethostname().to_string_lossy().into_owned();
    headers.set(header::FAILED_QUEUE, endpoint.timeouts_queue().as_str());
    headers.set(header::EXCEPTION_TYPE, exception_type(fault.reason));
    headers.set(header::EXCEPTION_MESSAGE, cut(&fault.error));
    headers.set(header::EXCEPTION_SOURCE, "postdate");
    headers.set(header::STACK_TRACE, cut(&fault.trace));
    headers.set(header::TIME_OF_FAILURE, to_wire(fault.at));
    headers.set(header::PROCESSING_ENDPOINT, endpoint.as_str());
    headers.set(header::PROCESSING_MACHINE, machine);
    headers.set(header::DESTINATION, original.destination.as_str());
    headers.set(header::DUE, to_wire(failed.due));
    headers.set(header::ATTEMPTS, fault.attempts.to_string());
    headers.set(header::REASON, fault.reason.as_str());
    OutgoingMessage {
        id: original.id.clone(),
        destination: error_queue.clone(),
        headers: headers.encode(),
        body: original.body.clone(),
    }
}

/// The original's headers in the copy, so that they can be brought back byte for byte.
fn carried(original: &EncodedHeaders) -> Headers {
    let mut headers = carry(original, &header::ALL);
    // A copy that was sent on as it was knows its original already.
    if let Ok(decoded) = original.decode()
        && let Some(known) = decoded.get(header::ORIGINAL_HEADERS)
    {
        headers.set(header::ORIGINAL_HEADERS, known);
    }
    headers
}

/// Headers without the names that are `reserved`, with the blob beside them where they do not tell it byte for byte.
pub(crate) fn carry(original: &EncodedHeaders, reserved: &[&str]) -> Headers {
    let mut headers = original.decode().unwrap_or_default();
    reserved.iter().for_each(|name| drop(headers.remove(name)));
    if headers.encode() != *original {
        headers.set(header::ORIGINAL_HEADERS, BASE64.encode(original.as_bytes()));
    }
    headers
}

/// The original's headers: the blob if there was one, else what is left without the names that were reserved.
pub(crate) fn bring_back(rest: &Headers, blob: Option<String>) -> Result<EncodedHeaders, String> {
    match blob {
        None => Ok(rest.encode()),
        Some(blob) => {
            let blob = BASE64.decode(blob).map_err(|e| format!("{}: {e}", header::ORIGINAL_HEADERS))?;
            Ok(EncodedHeaders::from_bytes(blob))
        }
    }
}

/// Brings back the message that was moved to the error queue as `copy`.
///
/// # Errors
/// When the fault headers are missing or damaged.
pub fn restore(copy: &OutgoingMessage) -> Result<FailedMessage, NotRestorable> {
    let not = |problem: String| NotRestorable { id: copy.id.clone(), problem };
    let mut headers = copy.headers.decode().map_err(|e| not(e.to_string()))?;
    let mut faults = header::ALL.map(|name| headers.remove(name));
    let mut take = |name: &str| {
        let place = header::ALL.iter().position(|known| *known == name);
        place.and_then(|place| faults[place].take())
    };
    let mut need = |name: &str| take(name).ok_or_else(|| not(format!("it has no header {name}")));
    let destination = Address::new(need(header::DESTINATION)?).map_err(|e| not(e.to_string()))?;
    let due = need(header::DUE)?;
    let failed_at = need(header::TIME_OF_FAILURE)?;
    let (reason, error) = (need(header::REASON)?, need(header::EXCEPTION_MESSAGE)?);
    let attempts =
        need(header::ATTEMPTS)?.parse().map_err(|_| not(format!("{} is no number", header::ATTEMPTS)))?;
    let time = |text: &str, name| from_wire(text).ok_or_else(|| not(format!("{name} is no time")));
    let headers = bring_back(&headers, take(header::ORIGINAL_HEADERS)).map_err(not)?;
    Ok(FailedMessage {
        original: OutgoingMessage { id: copy.id.clone(), destination, headers, body: copy.body.clone() },
        due: time(&due, header::DUE)?,
        attempts,
        reason,
        error,
        time_of_failure: time(&failed_at, header::TIME_OF_FAILURE)?,
    })
}

fn exception_type(reason: Reason) -> &'static str {
    match reason {
        Reason::RetriesExhausted => "postdate.DispatchError",
        Reason::NoDestination => "postdate.QueueNotFound",
        Reason::Expired => "postdate.Expired",
        Reason::NotStorable => "postdate.NotStorable",
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn to_wire(instant: Timestamp) -> String {
    instant.to_zoned_datetime(TimeZone::UTC).strftime(WIRE_TIME).to_string()
}

pub(crate) fn from_wire(text: &str) -> Option<Timestamp> {
    let civil = jiff::civil::DateTime::strptime(WIRE_TIME, text).ok()?;
    civil.to_zoned_datetime(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::MessageId;

    fn failed(headers: EncodedHeaders, body: &'static [u8]) -> DueMessage {
        DueMessage {
            message: OutgoingMessage {
                id: MessageId::new("order-7").unwrap(),
                destination: Address::new("billing").unwrap(),
                headers,
                body: Bytes::from_static(body),
            },
            due: "2026-12-25T08:00:00.123456Z".parse().unwrap(),
            failures: 2,
        }
    }

    fn move_to_error_queue(message: &DueMessage) -> OutgoingMessage {
        let fault = Fault {
            reason: Reason::RetriesExhausted,
            attempts: 3,
            error: "refused".into(),
            trace: "refused: by whom".into(),
            at: "2026-12-25T08:01:00Z".parse().unwrap(),
        };
        let endpoint = EndpointName::new("orders").unwrap();
        copy(message, &fault, &endpoint, &Address::new("error").unwrap())
    }

    #[test]
    fn the_copy_carries_the_faults_in_the_reference_s_words() {
        let copy = move_to_error_queue(&failed(Headers::from_iter([("tenant", "acme")]).encode(), b"body"));
        let headers = copy.headers.decode().unwrap();
        assert_eq!(copy.destination.as_str(), "error");
        for (name, value) in [
            ("tenant", "acme"),
            ("NServiceBus.FailedQ", "orders.timeouts"),
            ("NServiceBus.ExceptionInfo.Message", "refused"),
            ("NServiceBus.TimeOfFailure", "2026-12-25 08:01:00:000000 Z"),
            ("NServiceBus.Timeouts.Properties.NServiceBus.Timeout.Destination", "billing"),
            ("NServiceBus.Timeouts.Properties.NServiceBus.Timeout.Expire", "2026-12-25 08:00:00:123456 Z"),
            ("postdate.Attempts", "3"),
            ("postdate.FailureReason", "retries-exhausted"),
        ] {
            assert_eq!(headers.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn headers_come_back_byte_for_byte_whoever_wrote_them() {
        for blob in [
            &b"<xml/>\x00\xff"[..],
            b"{ \"a\": \"b\" }",
            b"{}",
            b"{\"a\":\"1\",\"a\":\"2\"}",
            b"{\"\\u0041\":\"b\"}",
            b"{\"NServiceBus.ProcessingEndpoint\":\"elsewhere\"}",
            b"",
        ] {
            let message = failed(EncodedHeaders::from_bytes(blob), b"\x00\x01");
            let restored = restore(&move_to_error_queue(&message)).unwrap();
            assert_eq!(restored.original.headers.as_bytes(), blob);
            assert_eq!(restored.original, message.message);
        }
    }

    #[test]
    fn a_copy_that_was_sent_on_and_failed_again_knows_its_original_and_does_not_grow() {
        let once = failed(EncodedHeaders::from_bytes(&b"{ \"a\": \"b\" }"[..]), b"body");
        let first = move_to_error_queue(&once);
        let second = move_to_error_queue(&DueMessage { message: first.clone(), ..once });
        assert_eq!(second.headers.len(), first.headers.len() + "error".len() - "billing".len());
        assert_eq!(restore(&second).unwrap().original.headers.as_bytes(), &b"{ \"a\": \"b\" }"[..]);
    }

    #[test]
    fn a_foreign_message_is_refused_by_name() {
        let message = failed(Headers::new().encode(), b"");
        let error = restore(&message.message).unwrap_err().to_string();
        assert!(error.contains("order-7") && error.contains(header::DESTINATION), "{error}");
    }

    #[test]
    fn the_type_of_the_exception_says_what_kind_of_failure_it_was() {
        for (reason, expected) in [
            (Reason::RetriesExhausted, "postdate.DispatchError"),
            (Reason::NoDestination, "postdate.QueueNotFound"),
            (Reason::Expired, "postdate.Expired"),
        ] {
            let fault = Fault {
                reason,
                attempts: 1,
                error: String::new(),
                trace: String::new(),
                at: Timestamp::UNIX_EPOCH,
            };
            let (endpoint, queue) = (EndpointName::new("orders").unwrap(), Address::new("error").unwrap());
            let copy = copy(&failed(Headers::new().encode(), b""), &fault, &endpoint, &queue);
            assert_eq!(copy.headers.decode().unwrap().get(header::EXCEPTION_TYPE), Some(expected));
        }
    }

    #[test]
    fn a_damaged_fault_header_is_named_and_not_shown() {
        for name in [header::DUE, header::TIME_OF_FAILURE, header::ATTEMPTS, header::ORIGINAL_HEADERS] {
            let mut copy = move_to_error_queue(&failed(Headers::new().encode(), b""));
            let mut headers = copy.headers.decode().unwrap();
            headers.set(name, "the-secret-value");
            copy.headers = headers.encode();
            let error = restore(&copy).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("the-secret"), "{error}");
        }
    }

    #[test]
    fn a_fault_is_recalled_as_it_was_remembered() {
        for reason in Reason::ALL {
            let (error, trace) = ("gone: for good".to_owned(), String::new());
            let fault = Fault { reason, attempts: 1, error, trace, at: Timestamp::UNIX_EPOCH };
            assert_eq!(Fault::recall(&fault.remember()), (reason, "gone: for good"));
        }
        assert_eq!(Fault::recall("refused: twice"), (Reason::RetriesExhausted, "refused: twice"));
    }

    #[test]
    fn long_errors_are_cut() {
        assert_eq!(cut(&"ä".repeat(20_000)).chars().count(), MAX_TEXT);
    }

    proptest! {
        #[test]
        fn any_message_comes_back(
            pairs in proptest::collection::vec((any::<String>(), any::<String>()), 0..6),
            micros in -62_135_596_800_000_000i64..253_402_200_000_000_000,
        ) {
            let headers: Headers = pairs.into_iter().collect();
            let due = Timestamp::from_microsecond(micros).unwrap();
            let message = DueMessage { due, ..failed(headers.encode(), b"any") };
            let restored = restore(&move_to_error_queue(&message)).unwrap();
            prop_assert_eq!(restored.due, due);
            prop_assert_eq!(restored.original, message.message);
        }
    }
}
