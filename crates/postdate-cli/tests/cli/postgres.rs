//! The verbs on a store in PostgreSQL, with its queues beside it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{database::Database, place::Running};

fn stop(running: Running) {
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn what_is_due_is_delivered_exactly_once_and_what_is_not_waits() {
    let database = Database::new();
    database.ok(&["queue", "create", "billing"]);
    let running = database.start(&["run"]);
    running.hears("exactly once (TransactionScope)");
    running.hears("Ctrl-C");
    database.ok(&["send", "billing", "later", "--in", "1h", "--id", "later"]);
    database.ok(&["send", "billing", "now", "--id", "now", "--header", "tenant=acme"]);
    database.ok(&["send", "billing", "soon", "--in", "200ms", "--id", "soon"]);
    let follower = database.start(&["receive", "billing", "--follow", "--count", "2"]);
    follower.reads("now");
    follower.reads("soon");
    assert_eq!(follower.ends(), Some(0));
    assert_eq!(database.one(&["list"])["id"], json!("later"));

    assert_eq!(database.one(&["reschedule", "later", "--now"])["outcome"], json!("rescheduled"));
    let follower = database.start(&["receive", "billing", "--follow", "--count", "1"]);
    follower.reads("later");
    stop(running);
}

#[test]
fn a_delivery_that_sleeps_is_woken_by_what_other_processes_do_before_they_end() {
    let database = Database::new();
    database.ok(&["queue", "create", "q"]);
    let running = database.start(&["run"]);
    running.hears("Ctrl-C");
    let begun = Instant::now();
    database.ok(&["send", "q", "x", "--in", "2s", "--id", "soon"]);
    database.ok(&["send", "q", "x", "--in", "1h", "--id", "later"]);
    database.until(&["queue", "browse", "q"], |there| there.len() == 1);
    database.ok(&["reschedule", "later", "--now"]);
    database.until(&["queue", "browse", "q"], |there| there.len() == 2);
    // Whoever is not woken looks again after a minute.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    stop(running);
}

#[test]
fn messages_are_listed_shown_and_cancelled() {
    let database = Database::new();
    database.ok(&["send", "billing", "body", "--in", "1h", "--id", "order-1", "--header", "tenant=acme"]);
    let listed = database.one(&["list", "--id-prefix", "order"]);
    assert_eq!((&listed["id"], &listed["state"]), (&json!("order-1"), &json!("pending")));
    let shown = database.one(&["show", "order-1"]);
    assert_eq!((&shown["body"], &shown["headers"]), (&json!({"text": "body"}), &json!({"tenant": "acme"})));
    assert_eq!(database.one(&["cancel", "order-1"]), json!({"id": "order-1", "outcome": "cancelled"}));
    assert_eq!(database.run(&["cancel", "order-1"]).code, 3);
    assert!(database.json(&["list"]).is_empty());
}

#[test]
fn what_cannot_be_delivered_is_shown_and_retried() {
    let database = Database::new();
    let running = database.start(&["run"]);
    running.hears("Ctrl-C");
    let sent = database.one(&["send", "nowhere", "lost", "--id", "lost"]);
    assert_eq!(sent["queue_exists"], json!(false));
    let failed = database.until(&["errors", "list"], |failed| failed.len() == 1);
    assert_eq!((&failed[0]["id"], &failed[0]["reason"]), (&json!("lost"), &json!("no-destination")));
    database.ok(&["queue", "create", "nowhere"]);
    assert_eq!(database.one(&["errors", "retry", "--all"])["outcome"], json!("retried"));
    database.until(&["queue", "browse", "nowhere"], |there| there.len() == 1);
    let status = database.one(&["status"]);
    assert_eq!((&status["pending"], &status["error_queue_depth"]), (&json!(0), &json!(0)));
    assert_eq!(status["dispatcher"]["delivery"], json!("unknown"));
    stop(running);
}

#[test]
fn a_second_process_delivers_beside_the_first() {
    let database = Database::new();
    database.ok(&["queue", "create", "q"]);
    let both = [database.start(&["run"]), database.start(&["run"])];
    both.iter().for_each(|running| _ = running.hears("Ctrl-C"));
    for n in 0..10 {
        database.ok(&["send", "q", "x", "--id", &format!("m-{n}")]);
    }
    database.until(&["status"], |status| status[0]["pending"] == json!(0));
    assert_eq!(database.json(&["queue", "browse", "q"]).len(), 10, "in exactly once mode each arrives once");
    both.into_iter().for_each(stop);
}

#[test]
fn a_killed_process_loses_nothing_and_sends_nothing_twice() {
    let database = Database::new();
    database.ok(&["queue", "create", "q"]);
    let running = database.start(&["run"]);
    running.hears("Ctrl-C");
    for n in 0..10 {
        database.ok(&["send", "q", "x", "--id", &format!("m-{n}")]);
    }
    running.signal("KILL");
    assert_eq!(running.ends(), None);
    let running = database.start(&["run"]);
    database.until(&["status"], |status| status[0]["pending"] == json!(0));
    assert_eq!(database.json(&["queue", "browse", "q"]).len(), 10);
    stop(running);
}

#[test]
fn who_may_make_no_tables_uses_what_somebody_else_has_set_up_by_the_printed_statements() {
    let database = Database::new();
    let user = format!("{}_user", database.schema);
    let password = "s3cret";
    database.execute(&format!("CREATE ROLE {user} LOGIN PASSWORD '{password}'"));
    let (_, host) = database.server.rsplit_once('@').unwrap();
    let url = database.url_on(&format!("postgres://{user}:{password}@{host}"));

    let printed = database.run_as(&url, &["setup", "--print"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let before = database.run_as(&url, &["list"]);
    assert_eq!(before.code, 7, "printing has set something up: {}", before.stderr);
    let refused = database.run_as(&url, &["setup"]);
    assert_eq!(refused.code, 7, "{}", refused.stderr);

    let schema = &database.schema;
    for _ in 0..2 {
        database.execute(&printed.stdout);
    }
    database.execute(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO {user};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {user}"
    ));
    for args in [&["setup"][..], &["send", "q", "x", "--in", "1h", "--id", "m"], &["cancel", "m"]] {
        let ran = database.run_as(&url, args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
    }
    database.execute(&format!("DROP OWNED BY {user}; DROP ROLE {user}"));
}

#[test]
fn the_statements_are_one_object_for_machines() {
    let database = Database::new();
    let script = database.one(&["setup", "--print", "--endpoint", "it's"]);
    assert_eq!(script["endpoint"], json!("it's"));
    let text = script["script"].as_str().unwrap();
    assert!(text.contains("CREATE TABLE") && text.contains("'it''s'"), "{text}");
}

#[test]
fn a_server_that_does_not_wait_for_the_disk_is_a_warning() {
    let database = Database::new();
    database.ok(&["setup"]);
    let checks = database.json(&["verify"]);
    let warning = checks.iter().find(|check| check["check"] == "settings" && check["result"] == "warning");
    let detail = warning.unwrap()["detail"].as_str().unwrap();
    assert!(detail.contains("fsync"), "{detail}");
    assert!(checks.iter().all(|check| check["result"] != "failed"), "{checks:?}");
}

#[test]
fn a_store_is_judged_beside_its_messages_and_nothing_is_left_behind() {
    let database = Database::new();
    database.ok(&["send", "billing", "kept", "--in", "1h", "--id", "own"]);
    let before = database.json(&["list"]);
    let names =
        ["browsing_takes_nothing", "a removed message is gone", "a_lease_ends_and_its_messages_are_free"];
    let args: Vec<_> = names.iter().flat_map(|name| ["--filter", name]).collect();
    let ran = database.ok(&[&["conformance"], &args[..]].concat());
    assert!(ran.stdout.contains("2 passed, 1 ignored, 0 failed in "), "{}", ran.stdout);
    assert_eq!(database.json(&["list"]), before);
}

#[test]
fn a_server_that_does_not_answer_is_unavailable_and_no_secret_is_shown() {
    let database = Database::on("postgres://me:s3cret@127.0.0.1:1/db".to_owned());
    for args in [&["list"][..], &["setup"], &["setup", "--print"], &["status"], &["run"]] {
        let ran = database.run(args);
        assert_eq!(ran.code, 6, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: postgres://***@127.0.0.1:1/db"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("s3cret") && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    }
}

#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    let database = Database::new();
    let (_, host) = database.server.rsplit_once('@').unwrap();
    let url = database.url_on(&format!("postgres://postgres:wr0ng@{host}"));
    let ran = database.run_as(&url, &["list"]);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(!ran.stderr.contains("wr0ng"), "{}", ran.stderr);
}
