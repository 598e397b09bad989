//! Headers, decoded and encoded.

use std::fmt;

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

/// Headers could not be read.
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
        let mut headers = Self::new();
        for (key, value) in pairs {
            headers.set(key, value);
        }
        headers
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
                let mut headers = Headers::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    headers.set(key, value);
                }
                Ok(headers)
            }
        }
        let mut json = serde_json::Deserializer::from_slice(&self.0);
        let headers = serde::Deserializer::deserialize_map(&mut json, InOrder);
        headers.and_then(|headers| json.end().map(|()| headers)).map_err(|e| HeadersError::at(&e))
    }
}

impl HeadersError {
    /// What the parser says quotes the values, which may be secrets.
    fn at(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self(format!("not one JSON object of strings, from line {line}, column {column}"))
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
    fn an_error_shows_no_value() {
        for blob in [r#""12345""#, r#"{"pin":12345}"#, r#"{"a":"b","pin":[12345]}"#, r#"{"a":"12345"} 12345"#]
        {
            let error = EncodedHeaders::from_bytes(blob).decode().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("12345"), "{blob}: {error}");
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
