//! Headers, decoded and encoded.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use bytes::Bytes;
use serde_json::Value;

/// The headers of a message: text under text, in the order in which they were set, each key once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

/// Headers as they are stored and carried: a blob that nobody on the way needs to understand.
///
/// postdate writes one JSON object of strings, and nothing at all where there are no headers. A blob that came
/// from elsewhere is carried byte for byte, whatever it is; only [`decode`](Self::decode) can find that it is
/// not understood.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EncodedHeaders(Bytes);

/// Headers could not be read. Says where, and nothing of what is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("headers cannot be read: {0}")]
pub struct HeadersError(String);

impl Headers {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Puts `value` under `key`, in the place of what was there.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    /// Takes away what is under `key`.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let place = self.0.iter().position(|(k, _)| k == key)?;
        Some(self.0.remove(place).1)
    }

    /// Keys and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The blob that is stored and carried.
    pub fn encode(&self) -> EncodedHeaders {
        if self.0.is_empty() {
            return EncodedHeaders::default();
        }
        let mut text =
            String::with_capacity(2 + self.0.iter().map(|(k, v)| k.len() + v.len() + 6).sum::<usize>());
        for (key, value) in &self.0 {
            text.push(if text.is_empty() { '{' } else { ',' });
            push_json_string(&mut text, key);
            text.push(':');
            push_json_string(&mut text, value);
        }
        text.push('}');
        EncodedHeaders(text.into())
    }
}

fn push_json_string(text: &mut String, value: &str) {
    text.push_str(&Value::from(value).to_string());
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut headers = Vec::new();
        // Where each key stands: a stranger's blob may have hundreds of thousands, too many to search through.
        let mut places = BTreeMap::new();
        for (key, value) in pairs {
            match places.entry(key.into()) {
                Entry::Vacant(new) => {
                    headers.push((new.key().clone(), value.into()));
                    new.insert(headers.len() - 1);
                }
                Entry::Occupied(known) => headers[*known.get()].1 = value.into(),
            }
        }
        Self(headers)
    }
}

/// Shows the keys only: values may be secrets.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(k, _)| k)).finish()
    }
}

impl EncodedHeaders {
    /// Takes a blob as it is; it may be anything.
    pub fn from_bytes(blob: impl Into<Bytes>) -> Self {
        Self(blob.into())
    }

    /// The blob.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no headers at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the headers.
    ///
    /// # Errors
    /// When the blob is not one JSON object of strings.
    pub fn decode(&self) -> Result<Headers, HeadersError> {
        if self.0.is_empty() {
            return Ok(Headers::new());
        }
        struct InOrder;
        impl<'de> serde::de::Visitor<'de> for InOrder {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                std::iter::from_fn(|| map.next_entry::<String, String>().transpose()).collect()
            }
        }
        let mut json = serde_json::Deserializer::from_slice(&self.0);
        let headers = serde::Deserializer::deserialize_map(&mut json, InOrder);
        headers.and_then(|headers| json.end().map(|()| headers)).map_err(|error| {
            // Its own text quotes what it did not expect, which may be a secret.
            let what = if error.is_data() { "not one object of strings" } else { "not JSON" };
            HeadersError(format!("{what}, line {} column {}", error.line(), error.column()))
        })
    }
}

/// Shows the size only: values may be secrets.
impl fmt::Debug for EncodedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedHeaders({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_keep_their_order_and_each_key_once() {
        let headers: Headers = [("b", "1"), ("a", "2"), ("b", "3")].into_iter().collect();
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("b", "3"), ("a", "2")]);
        assert_eq!(headers.encode().as_bytes(), &br#"{"b":"3","a":"2"}"#[..]);
    }

    #[test]
    fn very_many_headers_are_read_each_once() {
        // A tenth of a second. Searching for each key among those before took twenty.
        let pairs: Vec<_> = (0..100_000).map(|i| format!("\"k{}\":\"{i}\"", i % 99_999)).collect();
        let headers = EncodedHeaders::from_bytes(format!("{{{}}}", pairs.join(","))).decode().unwrap();
        assert_eq!((headers.len(), headers.get("k0")), (99_999, Some("99999")));
    }

    #[test]
    fn no_headers_are_no_bytes() {
        assert!(Headers::new().encode().is_empty());
        assert_eq!(EncodedHeaders::default().decode(), Ok(Headers::new()));
    }

    #[test]
    fn what_is_not_an_object_of_strings_is_refused() {
        for blob in ["<xml/>", "{", "[]", r#"{"a":1}"#, r#"{"a":"b"}x"#, "\u{0}"] {
            assert!(EncodedHeaders::from_bytes(blob).decode().is_err(), "{blob}");
        }
    }

    #[test]
    fn an_error_quotes_nothing() {
        for blob in
            ["\"123456\\n7\"", r#"{"token":123456}"#, r#"{"token":[123456]}"#, r#"{"123456":"a"} 123456"#]
        {
            let error = EncodedHeaders::from_bytes(blob).decode().unwrap_err().to_string();
            assert!(error.contains("line 1 column") && !error.contains("123456"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_headers_come_back(pairs in proptest::collection::vec((any::<String>(), any::<String>()), 0..20)) {
            let headers: Headers = pairs.into_iter().collect();
            prop_assert_eq!(headers.encode().decode(), Ok(headers));
        }

        #[test]
        fn no_blob_makes_decoding_panic(blob in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = EncodedHeaders::from_bytes(blob).decode();
        }
    }
}
