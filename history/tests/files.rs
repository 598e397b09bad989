//! Histories in files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs::OpenOptions, io::Write as _};

use jiff::Timestamp;
use postdate_history::{Event, What, file};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

#[test]
fn what_a_process_recorded_is_read_up_to_where_it_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.jsonl");
    let what = [What::Disturbed, What::Dropped { claim: 7 }];
    file::Recorder::open(&path, Some(1)).unwrap().record_all(what.clone());
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at\":\"2026-12-").unwrap();
    let read = file::read(&path).unwrap();
    assert!(read.iter().all(|event| event.process == Some(1)));
    assert_eq!(read.into_iter().map(|event| event.what).collect::<Vec<_>>(), what);
}

#[test]
fn a_line_that_is_no_event_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    file::write(&path, &[Event::of(1, at(0), What::Died)]).unwrap();
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"nonsense\n").unwrap();
    let error = format!("{:#}", file::read(&path).unwrap_err());
    assert!(error.contains("history.jsonl:2: this is no event"), "{error}");
}

#[test]
fn a_process_died_with_the_last_thing_that_it_wrote() {
    let released = What::Released { claim: 1, ids: Vec::new() };
    let first = vec![Event::of(1, at(1), What::Disturbed), Event::of(1, at(3), released.clone())];
    let second = vec![Event::of(2, at(4), released)];
    // Whoever killed it saw its end after another had taken over.
    let killer = vec![Event::outside(at(0), What::Healed), Event::of(1, at(5), What::Died)];
    let merged = file::merge([first, second, killer]);
    let order: Vec<_> = merged.iter().map(|event| (event.process, event.what == What::Died)).collect();
    assert_eq!(order, [(None, false), (Some(1), false), (Some(1), false), (Some(1), true), (Some(2), false)]);
}
