//! How a message says, in the queue of a pump, when it is due and where it goes.

use std::{fmt, time::Duration};

use jiff::{SignedDuration, Timestamp};

use crate::{
    Address, DelayedMessage, Due, OutgoingMessage, QueuedMessage,
    error_queue::{self, header as fault},
};

/// The names of the headers with which [`DelayedMessage::through`] writes it. The pump takes them away again.
pub mod header {
    /// When the message is due: an instant such as `2026-12-25T08:00:00Z`, or a delay such as `PT30M`, which counts
    /// from the moment at which the queue took the message.
    pub const DUE: &str = "postdate.due";
    /// Where it goes then.
    pub const DESTINATION: &str = "postdate.destination";
}

/// Reads from a message in the queue of a pump what is to be stored.
///
/// A backend whose messages say it in their own way brings its own. [`DeferralHeaders`] is ours.
pub trait DeferralFormat: fmt::Debug + Send + Sync + 'static {
    /// The message that is to be stored, under the id that it has in the queue: that is what makes a second storing
    /// of the same message harmless. A relative due time counts from [`QueuedMessage::enqueued`].
    ///
    /// # Errors
    /// When it does not say when it is due or where it goes. It goes to the error queue then.
    fn read(&self, queued: &QueuedMessage) -> Result<DelayedMessage, NotDeferred>;
}

/// A message in the queue of a pump does not say when it is due or where it goes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be delayed: {0}")]
pub struct NotDeferred(String);

impl NotDeferred {
    /// `detail` is one lower-case line, without header values.
    pub fn new(detail: impl Into<String>) -> Self {
        Self(detail.into())
    }
}

/// The [header names](header) of postdate. A message that was brought back from the error queue to the queue that
/// its fault headers name is understood as well.
///
/// Nobody can forge anything with headers: those of these names and of faults are taken away, and what a message
/// itself had under such names travels encoded, and comes back byte for byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeferralHeaders;

impl DelayedMessage {
    /// The message as it is sent to a pump: through its `queue`, which is
    /// [`EndpointName::timeouts_queue`](crate::EndpointName::timeouts_queue).
    ///
    /// A delay counts from the moment at which the queue takes the message, by the queue's clock; what is left of
    /// it when the pump stores the message, from then on by the store's. So it does not matter how far the clocks
    /// are apart, and the message is never early.
    pub fn through(self, queue: Address) -> OutgoingMessage {
        let Self { message, due } = self;
        let reserved: Vec<&str> = own().chain(fault::ALL).collect();
        let mut headers = error_queue::carry(&message.headers, &reserved);
        headers.set(header::DUE, write_due(due));
        headers.set(header::DESTINATION, message.destination.as_str());
        OutgoingMessage { destination: queue, headers: headers.encode(), ..message }
    }
}

impl DeferralFormat for DeferralHeaders {
    fn read(&self, queued: &QueuedMessage) -> Result<DelayedMessage, NotDeferred> {
        let OutgoingMessage { id, destination: queue, headers, body } = &queued.message;
        let mut headers = headers.decode().map_err(|error| NotDeferred::new(error.to_string()))?;
        let [due, destination] = [header::DUE, header::DESTINATION].map(|name| headers.remove(name));
        let blob = headers.remove(fault::ORIGINAL_HEADERS);
        let [failed_due, failed_destination] =
            [fault::DUE, fault::DESTINATION].map(|name| headers.remove(name));
        fault::ALL.iter().for_each(|name| drop(headers.remove(name)));
        // What failed and was sent back here says it in the headers of its failure, whatever headers it had before.
        let (due, destination) = match failed_destination {
            Some(_) => (failed_due.as_deref().map(read_wire_due), failed_destination),
            None => (due.as_deref().map(read_due), destination),
        };
        let due = due.ok_or_else(|| missing(header::DUE))??;
        let destination = destination.ok_or_else(|| missing(header::DESTINATION))?;
        let destination = Address::new(destination)
            .map_err(|_| NotDeferred::new(format!("{} is no queue name", header::DESTINATION)))?;
        if destination == *queue {
            return Err(NotDeferred::new("it would go back to the queue that it comes from"));
        }
        let headers = error_queue::bring_back(&headers, blob).map_err(NotDeferred)?;
        let message = OutgoingMessage { id: id.clone(), destination, headers, body: body.clone() };
        Ok(DelayedMessage { message, due })
    }
}

fn own() -> impl Iterator<Item = &'static str> {
    [header::DUE, header::DESTINATION].into_iter()
}

fn missing(name: &str) -> NotDeferred {
    NotDeferred::new(format!("it has no header {name}"))
}

fn write_due(due: Due) -> String {
    match due {
        Due::At(instant) => instant.to_string(),
        // Longer than all time there is either way; the store will say so.
        Due::After(delay) => SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX).to_string(),
    }
}

fn read_due(text: &str) -> Result<Due, NotDeferred> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(Due::At(instant));
    }
    let delay = text.parse::<SignedDuration>().ok().and_then(|delay| Duration::try_from(delay).ok());
    delay.map(Due::After).ok_or_else(|| {
        let example = "an instant such as 2026-12-25T08:00:00Z nor a delay such as PT30M";
        NotDeferred::new(format!("{} is neither {example}", header::DUE))
    })
}

fn read_wire_due(text: &str) -> Result<Due, NotDeferred> {
    let instant = error_queue::from_wire(text);
    instant.map(Due::At).ok_or_else(|| NotDeferred::new(format!("{} is no time", fault::DUE)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DueMessage, EncodedHeaders, EndpointName, Headers, Message, MessageId, Reason};

    fn queue() -> Address {
        EndpointName::new("orders").unwrap().timeouts_queue()
    }

    fn queued(message: OutgoingMessage) -> QueuedMessage {
        QueuedMessage { message, position: 1, enqueued: Timestamp::UNIX_EPOCH, deliveries: 0 }
    }

    fn delayed(headers: EncodedHeaders, due: Due) -> DelayedMessage {
        let billing = Address::new("billing").unwrap();
        let mut delayed = Message::new("body").id(MessageId::new("order-7").unwrap()).to(billing, due);
        delayed.message.headers = headers;
        delayed
    }

    fn read(headers: &[(&str, &str)]) -> Result<DelayedMessage, String> {
        let headers: Headers = headers.iter().copied().collect();
        let message = OutgoingMessage { destination: queue(), ..delayed(headers.encode(), Due::NOW).message };
        DeferralHeaders.read(&queued(message)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_message_comes_out_of_the_queue_as_it_went_in() {
        for blob in [
            &b""[..],
            b"{\"tenant\":\"acme\"}",
            b"<xml/>\x00\xff",
            b"{ \"a\": \"b\" }",
            b"{\"postdate.due\":\"PT0S\",\"postdate.destination\":\"elsewhere\"}",
            b"{\"NServiceBus.FailedQ\":\"elsewhere\",\"postdate.OriginalHeaders\":\"e30=\"}",
        ] {
            for due in [
                Due::NOW,
                Due::after(Duration::new(90, 1)),
                Due::at("2026-12-25T08:00:00.5Z".parse().unwrap()),
            ] {
                let before = delayed(EncodedHeaders::from_bytes(blob), due);
                let sent = before.clone().through(queue());
                assert_eq!(sent.destination.as_str(), "orders.timeouts");
                assert_eq!(DeferralHeaders.read(&queued(sent)), Ok(before));
            }
        }
    }

    #[test]
    fn anybody_can_write_it_by_hand_and_no_control_header_is_stored() {
        let message = read(&[
            ("tenant", "acme"),
            ("postdate.due", "2026-12-25T09:00:00+01:00"),
            ("postdate.destination", "billing"),
            ("NServiceBus.FailedQ", "forged"),
            ("postdate.Attempts", "-1"),
        ])
        .unwrap();
        assert_eq!(message.due, Due::at("2026-12-25T08:00:00Z".parse().unwrap()));
        assert_eq!(message.message.headers, Headers::from_iter([("tenant", "acme")]).encode());
        let due = read(&[("postdate.due", "1h 30m"), ("postdate.destination", "billing")]).unwrap().due;
        assert_eq!(due, Due::after(Duration::from_secs(5_400)));
    }

    #[test]
    fn what_does_not_say_when_or_where_is_refused_by_name_without_its_values() {
        for (headers, says) in [
            (&[][..], "no header postdate.due"),
            (&[("postdate.destination", "billing")], "no header postdate.due"),
            (&[("postdate.due", "PT1S")], "no header postdate.destination"),
            (&[("postdate.due", "secret"), ("postdate.destination", "billing")], "postdate.due is neither"),
            (&[("postdate.due", "-PT1S"), ("postdate.destination", "billing")], "postdate.due is neither"),
            (
                &[("postdate.due", "PT1S"), ("postdate.destination", "secret\n")],
                "postdate.destination is no queue",
            ),
            (
                &[("postdate.due", "PT1S"), ("postdate.destination", "orders.timeouts")],
                "go back to the queue",
            ),
        ] {
            let error = read(headers).unwrap_err();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
        let mut unreadable = delayed(EncodedHeaders::from_bytes("<xml/>"), Due::NOW).message;
        unreadable.destination = queue();
        assert!(DeferralHeaders.read(&queued(unreadable)).is_err());
    }

    #[test]
    fn a_copy_that_comes_back_from_the_error_queue_is_the_original_again() {
        let original = delayed(EncodedHeaders::from_bytes("{ \"a\": \"b\" }"), Due::NOW).message;
        let due: Timestamp = "2026-12-25T08:00:00.123456Z".parse().unwrap();
        let failed = DueMessage { message: original.clone(), due, failures: 0 };
        let (error, trace) = ("refused".to_owned(), String::new());
        let fault = error_queue::Fault { reason: Reason::NotStorable, attempts: 1, error, trace, at: due };
        let copy = error_queue::copy(&failed, &fault, &EndpointName::new("orders").unwrap(), &queue());
        let read = DeferralHeaders.read(&queued(copy)).unwrap();
        assert_eq!((read.message, read.due), (original, Due::at(due)));
    }

    #[test]
    fn what_was_sent_back_goes_where_it_was_to_go_whatever_headers_it_had() {
        let own =
            Headers::from_iter([("postdate.due", "PT0S"), ("postdate.destination", "elsewhere")]).encode();
        let original = delayed(own, Due::NOW).message;
        let due: Timestamp = "2026-12-25T08:00:00Z".parse().unwrap();
        let failed = DueMessage { message: original, due, failures: 0 };
        let (error, trace) = ("refused".to_owned(), String::new());
        let fault =
            error_queue::Fault { reason: Reason::RetriesExhausted, attempts: 1, error, trace, at: due };
        let copy = error_queue::copy(&failed, &fault, &EndpointName::new("orders").unwrap(), &queue());
        let read = DeferralHeaders.read(&queued(copy)).unwrap();
        assert_eq!((read.message.destination.as_str(), read.due), ("billing", Due::at(due)));
    }

    #[test]
    fn a_delay_without_end_stays_one() {
        let sent = delayed(EncodedHeaders::default(), Due::after(Duration::MAX)).through(queue());
        let Due::After(delay) = DeferralHeaders.read(&queued(sent)).unwrap().due else { panic!("no delay") };
        assert_eq!(Due::After(delay).resolve(Timestamp::UNIX_EPOCH), None);
    }

    proptest! {
        #[test]
        fn any_message_comes_out_as_it_went_in(
            pairs in proptest::collection::vec((any::<String>(), any::<String>()), 0..6),
            seconds in 0..i64::MAX.unsigned_abs(),
            nanos in 0..1_000_000_000_u32,
        ) {
            let headers: Headers = pairs.into_iter().collect();
            let before = delayed(headers.encode(), Due::after(Duration::new(seconds, nanos)));
            prop_assert_eq!(DeferralHeaders.read(&queued(before.clone().through(queue()))), Ok(before));
        }
    }
}
