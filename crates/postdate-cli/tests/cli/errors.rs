//! What could not be delivered, and how it is delivered after all.

use serde_json::{Value, json};

use crate::place::{Place, Running};

/// Sends to queues that are not there and waits until all is in the error queue.
fn fail(place: &Place, messages: &[(&str, &str)]) -> Running {
    let running = place.deliver(&[]);
    for (id, queue) in messages {
        place.ok(&["send", queue, "the body", "--id", id, "--header", "tenant=acme"]);
    }
    let all = |failed: &[Value]| failed.len() == messages.len();
    place.until(&["errors", "list"], all);
    running
}

#[test]
fn a_message_without_a_queue_is_retried_once_there_is_one_and_arrives_once() {
    let place = Place::new();
    let running = fail(&place, &[("order-7", "billing")]);
    let failed = place.one(&["errors", "list"]);
    for (key, value) in [
        ("id", json!("order-7")),
        ("queue", json!("billing")),
        ("reason", json!("no-destination")),
        ("restorable", json!(true)),
        ("attempts", json!(1)),
        ("body_bytes", json!(8)),
    ] {
        assert_eq!(failed[key], value, "{key} of {failed}");
    }
    let shown = place.one(&["errors", "show", "order-7"]);
    assert_eq!(
        (&shown["headers"], &shown["body"]),
        (&json!({"tenant": "acme"}), &json!({"text": "the body"}))
    );
    assert_eq!(place.one(&["status"])["error_queue_depth"], json!(1));

    place.ok(&["queue", "create", "billing"]);
    let retried = place.one(&["errors", "retry", "order-7"]);
    assert_eq!(retried, json!({"id": "order-7", "outcome": "retried", "queue": "billing"}));
    let arrived = |queues: &[Value]| queues.iter().any(|q| q["queue"] == "billing" && q["depth"] == 1);
    place.until(&["queue", "list"], arrived);
    assert!(place.json(&["errors", "list"]).is_empty());
    let received = place.one(&["receive", "billing"]);
    assert_eq!((&received["id"], &received["headers"]), (&json!("order-7"), &json!({"tenant": "acme"})));
    assert!(place.json(&["receive", "billing"]).is_empty());

    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn all_of_one_queue_are_retried_and_the_others_stay() {
    let place = Place::new();
    let _running = fail(&place, &[("a-1", "a"), ("b-1", "b"), ("a-2", "a")]);
    place.ok(&["queue", "create", "a"]);
    let mut retried = place.json(&["errors", "retry", "--all", "--queue", "a"]);
    retried.sort_by_key(|answer| answer["id"].to_string());
    assert_eq!(retried.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(), ["a-1", "a-2"]);
    assert_eq!(place.one(&["errors", "list"])["id"], json!("b-1"));
    assert_eq!(place.one(&["errors", "list", "--queue", "b"])["id"], json!("b-1"));
    assert!(place.json(&["errors", "list", "--queue", "a"]).is_empty());
}

#[test]
fn messages_that_are_too_large_to_be_received_together_are_all_retried() {
    let place = Place::new();
    std::fs::write(place.path().join("large"), vec![b'x'; 9 << 20]).unwrap();
    let running = place.deliver(&[]);
    for id in ["a", "b", "c"] {
        place.ok(&["send", "q", "--body-file", "large", "--id", id]);
    }
    place.until(&["status"], |status| status[0]["error_queue_depth"] == 3);
    place.ok(&["queue", "create", "q"]);
    let retried = place.json(&["errors", "retry", "a", "b", "c"]);
    assert!(retried.iter().all(|answer| answer["outcome"] == "retried"), "{retried:?}");
    place.until(&["status"], |status| status[0]["error_queue_depth"] == 0 && status[0]["pending"] == 0);
    assert_eq!(place.json(&["receive", "q"]).len(), 3);
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn a_retry_without_the_queue_warns_and_fails_again() {
    let place = Place::new();
    let _running = fail(&place, &[("order-7", "billing")]);
    let ran = place.ok(&["errors", "retry", "--all"]);
    assert!(ran.stderr.contains("postdate queue create billing"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "1 message is back on its way\n");
    place.until(&["errors", "list"], |failed| failed.len() == 1);
}

#[test]
fn another_message_under_the_same_id_is_a_conflict_and_both_stay() {
    let place = Place::new();
    let running = fail(&place, &[("order-7", "billing"), ("order-8", "billing")]);
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
    place.ok(&["send", "billing", "another body", "--id", "order-7", "--in", "1h"]);
    let ran = place.run(&["errors", "retry", "order-7", "order-8", "none", "--json"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let outcome = |id: &str| ran.json().iter().find(|answer| answer["id"] == id).unwrap()["outcome"].clone();
    assert_eq!(outcome("order-7"), json!("conflict"));
    assert_eq!(outcome("order-8"), json!("retried"));
    assert_eq!(outcome("none"), json!("not_found"));
    assert_eq!(place.one(&["errors", "list"])["id"], json!("order-7"));
    assert_eq!(place.one(&["show", "order-7"])["body"], json!({"text": "another body"}));

    place.ok(&["cancel", "order-7"]);
    place.ok(&["errors", "retry", "order-7"]);
}

#[test]
fn the_error_queue_is_purged_only_with_consent() {
    let place = Place::new();
    let _running = fail(&place, &[("order-7", "billing")]);
    assert_eq!(place.run(&["errors", "purge"]).code, 2);
    assert_eq!(place.one(&["errors", "purge", "--yes"]), json!({"queue": "error", "removed": 1}));
}

#[test]
fn what_postdate_did_not_put_into_the_error_queue_is_shown_and_left_alone() {
    let place = Place::new();
    let running = place.deliver(&["--error-queue", "elsewhere"]);
    place.ok(&["queue", "create", "error"]);
    place.ok(&["send", "error", "sent by hand", "--id", "foreign"]);
    let failed = place.until(&["errors", "list"], |failed| failed.len() == 1);
    assert_eq!((&failed[0]["restorable"], &failed[0]["queue"]), (&json!(false), &Value::Null));
    let ran = place.run(&["errors", "retry", "foreign", "--json"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.json()[0]["outcome"], json!("not_restorable"));
    assert_eq!(place.json(&["errors", "list"]).len(), 1);
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}
