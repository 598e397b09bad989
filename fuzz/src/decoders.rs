//! What the core decodes: names, headers, URLs, cursors, and what is in the error queue.

use std::num::NonZeroUsize;

use futures::FutureExt as _;
use postdate::{
    Address, Backend as _, Cursor, EncodedHeaders, EndpointName, Filter, Headers, ListQuery, Memory, Message,
    MessageId, ScheduledMessages, StoreErrorKind, StoreUrl, TransactionMode, error_queue,
    error_queue::header, sqlite::Durability,
};

use super::brief::Target;

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "names", run: names, rounds: 2_000 },
    Target { name: "headers", run: headers, rounds: 2_000 },
    Target { name: "store_url", run: store_url, rounds: 2_000 },
    Target { name: "error_queue", run: failed_message, rounds: 2_000 },
    Target { name: "memory_cursor", run: memory_cursor, rounds: 500 },
];

fn names(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (id, address, endpoint) = (MessageId::new(&text), Address::new(&text), EndpointName::new(&text));
    for (most, name) in [
        (MessageId::MAX_CHARS, id.map(|id| id.to_string())),
        (Address::MAX_CHARS, address.map(|address| address.to_string())),
        (EndpointName::MAX_CHARS, endpoint.map(|endpoint| endpoint.to_string())),
    ] {
        let valid = (1..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        match name {
            Ok(name) => assert!(valid && name == text),
            Err(error) => assert!(!valid && is_one_line(&error.to_string(), 1_000)),
        }
    }
    if let Ok(durability) = text.parse::<Durability>() {
        assert!(["power-loss", "process-crash"].contains(&&*text), "{text:?} is {durability:?}");
    }
}

fn headers(input: &[u8]) {
    let blob = EncodedHeaders::from_bytes(input.to_vec());
    match blob.decode() {
        Ok(headers) => {
            let size: usize = headers.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert!(size <= input.len(), "{size} bytes were read from {}", input.len());
            assert_eq!(headers.encode().decode().as_ref(), Ok(&headers));
            let (mut seen, again) = (headers.clone(), headers.iter().collect::<Headers>());
            assert!(again == headers, "a key is there twice");
            assert!(headers.iter().all(|(key, _)| seen.remove(key).is_some()) && seen.is_empty());
        }
        Err(error) => assert!(is_one_line(&error.to_string(), 100), "it quotes what is there: {error}"),
    }
}

/// Any text, and texts with a secret in them.
fn store_url(input: &[u8]) {
    const SECRET: &str = "s3cr3t";

    let text = String::from_utf8_lossy(input);
    if let Ok(url) = StoreUrl::parse(&text) {
        assert_eq!(url.secret(), text);
        assert_eq!(StoreUrl::parse(url.secret()).as_ref(), Ok(&url));
        assert!(text.starts_with(&format!("{}:{}", url.scheme(), url.place())));
        let shown = url.to_string();
        assert!(text.chars().any(char::is_control) || is_one_line(&shown, 4 * text.len() + 10), "{shown:?}");
    }
    let mut parts = text.splitn(3, '\n');
    let [user, password, rest] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    for hidden in [
        format!("postgres://{user}:{password}{SECRET}@{rest}"),
        format!("azblob://{user}?{password}={SECRET}"),
        format!("azblob://{user}?sig={SECRET}{password}&{rest}"),
    ] {
        // What the parts say themselves is no secret.
        if let Ok(url) = StoreUrl::parse(&hidden)
            && !text.contains("s3")
            && !text.contains("cr3")
        {
            assert!(!format!("{url} {url:?}").contains(SECRET), "{hidden:?} is shown as {url}");
        }
    }
}

/// A copy whose fault headers are replaced or taken away, one after the other.
fn failed_message(input: &[u8]) {
    let mut headers: Headers = [
        (header::DESTINATION, "billing"),
        (header::DUE, "2026-12-25 08:00:00:123456 Z"),
        (header::TIME_OF_FAILURE, "2026-12-25 08:01:00:000000 Z"),
        (header::REASON, "retries-exhausted"),
        (header::EXCEPTION_MESSAGE, "refused"),
        (header::ATTEMPTS, "3"),
        ("tenant", "acme"),
    ]
    .into_iter()
    .collect();
    for line in input.split(|byte| *byte == b'\n') {
        let Some((which, value)) = line.split_first() else { continue };
        let name = header::ALL.get(usize::from(*which).wrapping_sub(usize::from(b'a'))).unwrap_or(&"other");
        match value {
            b"" => drop(headers.remove(name)),
            value => headers.set(*name, String::from_utf8_lossy(value)),
        }
    }
    let queue = Address::new("error").expect("it is valid");
    let mut copy = Message::new(input.to_vec()).to(queue, postdate::Due::NOW).message;
    copy.headers = headers.encode();
    match error_queue::restore(&copy) {
        Ok(failed) => {
            assert_eq!((&failed.original.id, &failed.original.body), (&copy.id, &copy.body));
            assert_eq!(headers.get(header::DESTINATION), Some(failed.original.destination.as_str()));
            let carried = headers.get(header::ORIGINAL_HEADERS).is_none();
            let kept = failed.original.headers.decode().unwrap_or_default();
            assert!(!carried || header::ALL.iter().all(|name| kept.get(name).is_none()));
        }
        Err(error) => assert!(is_one_line(&error.to_string(), 4 * input.len() + 1_000), "{error:?}"),
    }
    copy.headers = EncodedHeaders::from_bytes(input.to_vec());
    drop(error_queue::restore(&copy));
}

fn memory_cursor(input: &[u8]) {
    let (memory, endpoint) = (Memory::new(), EndpointName::new("orders").expect("it is valid"));
    let open = async {
        memory.set_up(&endpoint).await?;
        memory.open(&endpoint, TransactionMode::ReceiveOnly).await
    };
    let store = open.now_or_never().expect("memory does not wait").expect("it was just set up");
    list_from(&*store, input).now_or_never().expect("memory does not wait");
}

/// Lists from a cursor that may be anything: a page or a refusal.
pub(crate) async fn list_from(store: &(impl ScheduledMessages + ?Sized), cursor: &[u8]) {
    let mut query = ListQuery::new(Filter::default(), NonZeroUsize::MIN);
    query.after = Some(Cursor(String::from_utf8_lossy(cursor).into_owned()));
    if let Err(error) = store.list(&query).await {
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{error}");
    }
}

fn is_one_line(text: &str, most: usize) -> bool {
    text.len() <= most && !text.chars().any(char::is_control)
}
