//! queue and receive.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::place::Place;

/// Puts messages into a queue by delivering them.
pub(crate) fn fill(place: &Place, queue: &str, bodies: &[&str]) {
    place.ok(&["queue", "create", queue]);
    let running = place.deliver(&[]);
    for (n, body) in bodies.iter().enumerate() {
        place.ok(&["send", queue, body, "--id", &format!("m-{n}")]);
        let full = |queues: &[serde_json::Value]| {
            queues.iter().any(|listed| listed["queue"] == queue && listed["depth"] == json!(n + 1))
        };
        place.until(&["queue", "list"], full);
    }
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn a_queue_is_created_once_listed_browsed_and_purged() {
    let place = Place::new();
    let created = place.json(&["queue", "create", "a", "b"]);
    assert_eq!(created, [json!({"queue": "a", "created": true}), json!({"queue": "b", "created": true})]);
    assert_eq!(place.one(&["queue", "create", "a"]), json!({"queue": "a", "created": false}));

    fill(&place, "a", &["first", "second"]);
    let browsed = place.json(&["queue", "browse", "a"]);
    assert_eq!(browsed.len(), 2);
    assert_eq!(browsed[0]["body"], json!({"text": "first"}));
    assert_eq!(place.json(&["queue", "browse", "a", "--limit", "1"]).len(), 1);

    let refused = place.run(&["queue", "purge", "a"]);
    assert_eq!(refused.code, 2);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert_eq!(place.one(&["queue", "purge", "a", "--yes"]), json!({"queue": "a", "removed": 2}));
    assert!(place.json(&["queue", "browse", "a"]).is_empty());
}

#[test]
fn messages_are_received_in_order_and_once() {
    let place = Place::new();
    fill(&place, "q", &["first", "second", "third"]);
    assert_eq!(place.ok(&["receive", "q", "--count", "1"]).stdout, "first\n");
    let second = place.one(&["receive", "q", "--count", "1"]);
    assert_eq!(second["id"], json!("m-1"));
    assert_eq!((&second["queue"], &second["headers"]), (&json!("q"), &json!({})));
    assert_eq!(place.ok(&["receive", "q"]).stdout, "third\n");
    assert_eq!(place.ok(&["receive", "q"]).stdout, "");
}

#[test]
fn a_follower_creates_the_queue_waits_and_ends_with_ctrl_c() {
    let place = Place::new();
    let follower = place.start(&["receive", "q", "--follow"]);
    follower.hears("created the queue q");
    let running = place.deliver(&[]);
    place.ok(&["send", "q", "late"]);
    follower.reads("late");
    follower.signal("INT");
    assert_eq!(follower.ends(), Some(0));
    running.signal("INT");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn a_follower_stops_after_the_wanted_count() {
    let place = Place::new();
    let follower = place.start(&["receive", "q", "--follow", "--count", "1"]);
    follower.hears("created the queue q");
    let _running = place.deliver(&[]);
    place.ok(&["send", "q", "one"]);
    follower.reads("one");
    assert_eq!(follower.ends(), Some(0));
}

#[test]
fn a_reader_that_went_away_loses_no_message_and_sees_no_error() {
    let place = Place::new();
    fill(&place, "q", &["first", "second"]);
    let mut receiver =
        place.command(&["receive", "q"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(receiver.stdout.take());
    let ended = receiver.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
    assert_eq!(place.ok(&["receive", "q"]).stdout, "first\nsecond\n");
    for args in [&["queue", "list"][..], &["completions", "bash"], &["--help"]] {
        let mut child = place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{args:?}");
    }
}

#[test]
fn a_body_comes_from_a_file_or_from_standard_input() {
    let place = Place::new();
    std::fs::write(place.path().join("body"), b"\x00\xff").unwrap();
    place.ok(&["send", "q", "--body-file", "body", "--id", "file", "--in", "1h"]);
    assert_eq!(place.one(&["show", "file"])["body"], json!({"base64": "AP8="}));

    let mut command: Command =
        place.command(&["send", "q", "--body-file", "-", "--id", "input", "--in", "1h"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from input").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.one(&["show", "input"])["body"], json!({"text": "from input"}));
}
