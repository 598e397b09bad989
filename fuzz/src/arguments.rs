//! What the binary reads: delays, times, headers on its command line, foreign text, and the status file.

use std::{fs, time::Duration};

use postdate::EndpointName;

use super::brief::Target;
use crate::{
    cli::header::parse_header,
    output::{
        escape::{escape, escape_bytes},
        time::{parse_delay, parse_time, relative},
    },
    presence::Presence,
};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "delay", run: delay, rounds: 2_000 },
    Target { name: "time", run: time, rounds: 2_000 },
    Target { name: "header_argument", run: header_argument, rounds: 1_000 },
    Target { name: "foreign_text", run: foreign_text, rounds: 2_000 },
    Target { name: "status_file", run: status_file, rounds: 300 },
];

fn delay(input: &[u8]) {
    const TEN_THOUSAND_YEARS: Duration = Duration::from_secs(10_000 * 366 * 86_400);

    match parse_delay(&String::from_utf8_lossy(input)) {
        Ok(delay) => assert!(delay < TEN_THOUSAND_YEARS, "{delay:?}"),
        Err(advice) => assert!(advice.contains("30") || advice.contains("leave it out"), "{advice}"),
    }
}

fn time(input: &[u8]) {
    match parse_time(&String::from_utf8_lossy(input)) {
        Ok(time) => {
            assert_eq!(parse_time(&time.to_string()), Ok(time));
            assert!(!relative(time, jiff::Timestamp::UNIX_EPOCH).is_empty());
        }
        Err(advice) => assert!(advice.contains("2026-12-25T08:00:00Z"), "{advice}"),
    }
}

fn header_argument(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok((key, value)) = parse_header(&text) {
        assert!(!key.is_empty() && !key.chars().any(char::is_control));
        assert_eq!(format!("{key}={value}"), text);
    }
}

fn foreign_text(input: &[u8]) {
    let shown = escape_bytes(input);
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    assert_eq!(escape(&shown), shown, "it was not harmless yet");
    if let Ok(text) = std::str::from_utf8(input) {
        assert_eq!(escape(text), shown);
    }
}

fn status_file(input: &[u8]) {
    thread_local! {
        static PLACE: tempfile::TempDir = tempfile::tempdir().expect("there is room for a file");
    }
    let path = PLACE.with(|place| place.path().join("x.db-status"));
    let endpoint = EndpointName::new("postdate").expect("it is valid");
    fs::write(&path, input).expect("there is room for a file");
    if let Some(presence) = Presence::read(&path, &endpoint) {
        presence.write(&path).expect("there is room for a file");
        assert_eq!(Presence::read(&path, &endpoint), Some(presence));
    }
}
