//! run: delivering, standing by, stopping, being killed.

use serde_json::{Value, json};

use crate::place::{Place, Running};

fn stop(running: Running) {
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn what_is_due_is_delivered_and_what_is_not_waits() {
    let place = Place::new();
    place.ok(&["queue", "create", "billing"]);
    let running = place.deliver(&[]);
    place.ok(&["send", "billing", "later", "--in", "1h", "--id", "later"]);
    place.ok(&["send", "billing", "now", "--id", "now", "--header", "tenant=acme"]);
    place.ok(&["send", "billing", "soon", "--in", "200ms", "--id", "soon"]);
    let follower = place.start(&["receive", "billing", "--follow", "--count", "2"]);
    follower.reads("now");
    follower.reads("soon");
    assert_eq!(follower.ends(), Some(0));
    assert_eq!(place.one(&["list"])["id"], json!("later"));

    place.ok(&["reschedule", "later", "--now"]);
    let follower = place.start(&["receive", "billing", "--follow", "--count", "1"]);
    follower.reads("later");
    stop(running);
}

#[test]
fn a_start_is_announced_with_what_to_try_next() {
    let place = Place::new();
    let running = place.start(&["run", "--json"]);
    running.hears("sqlite:postdate.db");
    running.hears("exactly once");
    running.hears("postdate send billing");
    let started: Value = serde_json::from_str(&running.reads("started")).unwrap();
    assert_eq!(
        started,
        json!({
            "event": "started", "store": "sqlite:postdate.db", "transport": "sqlite:postdate.db",
            "endpoint": "postdate",
            "mode": "TransactionScope", "error_queue": "error",
        })
    );
    running.signal("INT");
    running.hears("stopping");
    running.hears("stopped");
    running.reads("\"stopped\"");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn a_mode_can_be_insisted_on() {
    let place = Place::new();
    let running = place.start(&["run", "--mode", "receive-only"]);
    running.hears("at least once (ReceiveOnly)");
    stop(running);
}

#[test]
fn a_second_process_stands_by_and_takes_over() {
    let place = Place::new();
    place.ok(&["queue", "create", "q"]);
    let first = place.deliver(&[]);
    let dispatcher = place.until(&["status"], |status| status[0]["dispatcher"]["pid"] == json!(first.id()));
    assert_eq!(dispatcher[0]["dispatcher"]["delivery"], json!("running"));
    assert_eq!(dispatcher[0]["dispatcher"]["mode"], json!("TransactionScope"));

    let second = place.start(&["run"]);
    second.hears("standing by");
    assert_eq!(place.one(&["status"])["dispatcher"]["pid"], json!(first.id()));
    stop(first);
    second.hears("delivering now");
    place.ok(&["send", "q", "after the change"]);
    let follower = place.start(&["receive", "q", "--follow", "--count", "1"]);
    follower.reads("after the change");
    assert_eq!(place.one(&["status"])["dispatcher"]["pid"], json!(second.id()));
    stop(second);
    assert_eq!(place.one(&["status"])["dispatcher"]["delivery"], json!("stopped"));
}

#[test]
fn two_endpoints_in_one_file_are_delivered_for_side_by_side() {
    let place = Place::new();
    let (orders, billing) =
        (place.deliver(&["--endpoint", "orders"]), place.deliver(&["--endpoint", "billing"]));
    for (endpoint, running) in [("orders", &orders), ("billing", &billing)] {
        let by_it = |status: &[Value]| status[0]["dispatcher"]["pid"] == json!(running.id());
        place.until(&["status", "--endpoint", endpoint], by_it);
    }
    stop(orders);
    let delivery =
        |endpoint| place.one(&["status", "--endpoint", endpoint])["dispatcher"]["delivery"].clone();
    assert_eq!((delivery("orders"), delivery("billing")), (json!("stopped"), json!("running")));
    stop(billing);
}

#[test]
fn a_killed_process_is_noticed_and_nothing_is_lost() {
    let place = Place::new();
    place.ok(&["queue", "create", "q"]);
    let running = place.deliver(&[]);
    place.until(&["status"], |status| status[0]["dispatcher"]["pid"] == json!(running.id()));
    let sent: Vec<String> = (0..20).map(|n| format!("m-{n}")).collect();
    for id in &sent {
        place.ok(&["send", "q", id, "--id", id]);
    }
    running.signal("KILL");
    assert_eq!(running.ends(), None);
    assert_eq!(place.one(&["status"])["dispatcher"]["delivery"], json!("crashed"));

    let running = place.deliver(&[]);
    place.until(&["status"], |status| status[0]["pending"] == json!(0));
    let mut received: Vec<String> = place
        .json(&["receive", "q"])
        .iter()
        .map(|message| message["id"].as_str().unwrap().to_owned())
        .collect();
    received.sort_by_key(|id| id[2..].parse::<u32>().unwrap());
    assert_eq!(received, sent, "in exactly once mode each arrives once");
    stop(running);
}

#[test]
fn what_is_too_late_goes_to_the_error_queue() {
    let place = Place::new();
    place.ok(&["queue", "create", "q"]);
    place.ok(&["send", "q", "x", "--id", "old", "--at", "2020-01-01"]);
    let running = place.deliver(&[
        "--max-lateness",
        "1h",
        "--retries",
        "2",
        "--batch-size",
        "10",
        "--concurrency",
        "1",
    ]);
    let failed = place.until(&["errors", "list"], |failed| failed.len() == 1);
    assert_eq!((&failed[0]["id"], &failed[0]["reason"]), (&json!("old"), &json!("expired")));
    stop(running);
}
