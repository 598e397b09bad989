//! send, list, show, cancel, reschedule, status, setup, verify.

use serde_json::{Value, json};

use crate::place::Place;

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_message_is_sent_listed_shown_rescheduled_and_cancelled() {
    let place = Place::new();
    let sent = place.one(&[
        "send",
        "billing",
        "{\"invoice\":42}",
        "--id",
        "order-7",
        "--at",
        "2126-12-25T08:00+01:00[Europe/Berlin]",
        "--header",
        "tenant=acme",
    ]);
    assert_eq!(
        sent,
        json!({"id": "order-7", "queue": "billing", "due": "2126-12-25T07:00:00Z", "queue_exists": false})
    );

    let listed = place.one(&["list"]);
    let expected = json!({
        "id": "order-7", "queue": "billing", "due": "2126-12-25T07:00:00Z",
        "next_attempt": "2126-12-25T07:00:00Z", "state": "pending", "failures": 0, "last_error": null,
        "body_bytes": 14,
    });
    assert_eq!(listed, expected);

    let shown = place.one(&["show", "order-7"]);
    assert_eq!(shown["headers"], json!({"tenant": "acme"}));
    assert_eq!(shown["body"], json!({"text": "{\"invoice\":42}"}));

    let again = place.one(&["reschedule", "order-7", "--at", "2127-01-01"]);
    assert_eq!(again, json!({"id": "order-7", "outcome": "rescheduled", "due": "2127-01-01T00:00:00Z"}));
    assert_eq!(place.one(&["cancel", "order-7"]), json!({"id": "order-7", "outcome": "cancelled"}));
    assert!(place.json(&["list"]).is_empty());
}

#[test]
fn what_is_not_there_is_not_found() {
    let place = Place::new();
    place.ok(&["setup"]);
    for args in [
        &["show", "none"][..],
        &["cancel", "none"],
        &["reschedule", "none", "--now"],
        &["queue", "browse", "none"],
        &["queue", "purge", "none", "--yes"],
        &["errors", "show", "none"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, 3, "{args:?}: {}", ran.stderr);
        let told = place.run(&[args, &["--json"]].concat());
        assert_eq!(told.code, 3, "{args:?}");
    }
}

#[test]
fn of_many_outcomes_the_worst_is_reported_and_all_are_written() {
    let place = Place::new();
    place.ok(&["send", "q", "x", "--id", "a", "--in", "1h"]);
    let ran = place.run(&["cancel", "a", "none", "--json"]);
    assert_eq!(ran.code, 3);
    assert_eq!(
        ran.json(),
        [json!({"id": "a", "outcome": "cancelled"}), json!({"id": "none", "outcome": "not_found"})]
    );
}

#[test]
fn the_same_send_again_changes_nothing_and_another_one_is_a_conflict() {
    let place = Place::new();
    let send = |body| place.run(&["send", "q", body, "--id", "a", "--in", "1h", "--json"]);
    let first = send("x");
    assert_eq!((first.code, send("x").json()), (0, first.json()));
    let conflict = send("y");
    assert_eq!(conflict.code, 4);
    let told: Value = serde_json::from_str(&conflict.stderr).unwrap();
    assert_eq!((&told["error"], &told["exit_code"]), (&json!("conflict"), &json!(4)));
    assert_eq!(place.one(&["show", "a"])["body"], json!({"text": "x"}));
}

#[test]
fn a_send_to_a_queue_that_is_not_there_names_the_command_that_creates_it() {
    let place = Place::new();
    let ran = place.ok(&["send", "new queue", "x"]);
    assert!(ran.stderr.contains("postdate queue create 'new queue'"), "{}", ran.stderr);
    assert!(place.ok(&["send", "new queue", "x", "--quiet"]).stderr.is_empty());
    place.ok(&["queue", "create", "new queue"]);
    assert!(!place.ok(&["send", "new queue", "x"]).stderr.contains("no queue"));
}

#[test]
fn a_send_while_nobody_delivers_says_who_could() {
    let place = Place::new();
    place.ok(&["queue", "create", "q"]);
    let idle = place.ok(&["send", "q", "x", "--in", "1h"]);
    assert!(idle.stderr.contains("postdate run"), "{}", idle.stderr);
    let running = place.deliver(&[]);
    place.until(&["status"], |status| status[0]["dispatcher"]["delivery"] == "running");
    assert!(place.ok(&["send", "q", "x", "--in", "1h"]).stderr.is_empty());
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn a_list_can_be_narrowed_and_shows_that_there_is_more() {
    let place = Place::new();
    for (queue, id, time) in
        [("a", "x-1", "2126-01-01"), ("a", "x-2", "2126-01-02"), ("b", "y-1", "2126-01-03")]
    {
        place.ok(&["send", queue, "body", "--id", id, "--at", time]);
    }
    let ids = |args: &[&str]| {
        let lines = place.json(&[&["list"], args].concat());
        lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--all"]), ["x-1", "x-2", "y-1"]);
    assert_eq!(ids(&["--queue", "b"]), ["y-1"]);
    assert_eq!(ids(&["--id-prefix", "x-"]), ["x-1", "x-2"]);
    assert_eq!(ids(&["--due-before", "2126-01-02"]), ["x-1"]);
    assert_eq!(ids(&["--due-from", "2126-01-02"]), ["x-2", "y-1"]);
    assert!(ids(&["--failing"]).is_empty());
    let cut = place.ok(&["list", "--limit", "2"]);
    assert!(cut.stdout.contains("x-2") && !cut.stdout.contains("y-1"), "{}", cut.stdout);
    assert!(cut.stderr.contains("--all"), "{}", cut.stderr);
    assert!(place.ok(&["list", "--limit", "3"]).stderr.is_empty());
}

#[test]
fn endpoints_do_not_see_each_other() {
    let place = Place::new();
    place.ok(&["send", "q", "x", "--id", "a", "--in", "1h", "--endpoint", "orders"]);
    place.ok(&["setup"]);
    assert!(place.json(&["list"]).is_empty());
    assert_eq!(place.json(&["list", "--endpoint", "orders"]).len(), 1);
    let by_variable = place.command(&["list", "--json"]).env("POSTDATE_ENDPOINT", "orders").output().unwrap();
    assert!(String::from_utf8(by_variable.stdout).unwrap().contains("\"a\""));
}

#[test]
fn looking_makes_no_file_and_says_what_does() {
    let place = Place::new();
    for args in [&["list"][..], &["status"], &["show", "a"], &["queue", "list"], &["errors", "list"]] {
        let ran = place.run(args);
        assert_eq!(ran.code, 7, "{args:?}");
        assert!(ran.stderr.contains("postdate setup"), "{}", ran.stderr);
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn setting_up_twice_is_as_good_as_once() {
    let place = Place::new();
    let ready = json!({"store": "sqlite:postdate.db", "endpoint": "postdate", "ready": true});
    assert_eq!(place.one(&["setup"]), ready);
    assert_eq!(place.one(&["setup"]), ready);
    let unknown = place.run(&["list", "--endpoint", "other"]);
    assert_eq!(unknown.code, 7, "{}", unknown.stderr);
}

#[test]
fn the_status_counts_what_waits_and_raises_an_alarm() {
    let place = Place::new();
    place.ok(&["send", "q", "x", "--at", "2020-01-01"]);
    place.ok(&["send", "q", "x", "--at", "2126-01-01"]);
    let status = place.one(&["status"]);
    for key in [
        "store",
        "transport",
        "endpoint",
        "now",
        "pending",
        "overdue",
        "oldest_overdue",
        "next_due",
        "in_flight",
        "failing",
        "error_queue",
        "error_queue_depth",
        "queues",
        "dispatcher",
        "alarm",
    ] {
        assert!(keys(&status).contains(&key), "{key} is not in {status}");
    }
    assert_eq!((&status["pending"], &status["overdue"]), (&json!(2), &json!(1)));
    assert_eq!(status["next_due"], json!("2126-01-01T00:00:00Z"));
    assert_eq!(status["dispatcher"]["delivery"], json!("stopped"));
    assert_eq!(status["alarm"], json!("overdue_and_nobody_delivers"));
    assert!(place.ok(&["status"]).stdout.contains("ALARM"));
}

#[test]
fn a_sound_store_passes_every_check_and_a_foreign_file_does_not() {
    let place = Place::new();
    place.ok(&["send", "q", "x", "--in", "1h"]);
    let checks = place.json(&["verify"]);
    assert!(checks.iter().all(|check| check["result"] == "ok"), "{checks:?}");

    std::fs::write(place.path().join("foreign.db"), "this is no database, but long enough to look like one")
        .unwrap();
    let ran = place.run(&["verify", "--store", "sqlite:foreign.db", "--json"]);
    assert_eq!(ran.code, 7, "{}", ran.stdout);
    assert!(ran.json().iter().any(|check| check["result"] == "failed"));
}

#[test]
fn what_weakens_a_store_is_a_warning() {
    let place = Place::new();
    let store = "sqlite:fast.db?durability=process-crash";
    place.ok(&["setup", "--store", store]);
    let checks = place.json(&["verify", "--store", store]);
    let warnings: Vec<_> = checks.iter().filter(|check| check["result"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "{checks:?}");
    assert_eq!(warnings[0]["check"], json!("settings"));
    let detail = warnings[0]["detail"].as_str().unwrap();
    assert!(detail.contains("power failure") && detail.contains("leave the option out"), "{detail}");
    assert!(place.ok(&["verify", "--store", store]).stdout.contains("warning  settings    durability"));
    place.ok(&["setup"]);
    let elsewhere = place.json(&["verify", "--transport", store]);
    assert!(elsewhere.iter().any(|check| check["check"] == "settings"), "{elsewhere:?}");
}

#[test]
fn a_store_that_is_a_file_has_no_statements_to_print_and_is_not_made_for_that() {
    let place = Place::new();
    let ran = place.run(&["setup", "--print"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("`postdate setup` prepares it"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}
