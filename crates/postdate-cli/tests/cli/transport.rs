//! --transport: queues that are not beside the store.

use serde_json::json;

use crate::place::Place;

const TRANSPORT: [&str; 2] = ["--transport", "sqlite:queues.db"];

fn with<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [args, &TRANSPORT].concat()
}

#[test]
fn what_is_due_goes_to_queues_elsewhere() {
    let place = Place::new();
    assert!(place.one(&with(&["queue", "create", "billing"]))["created"] == json!(true));
    let running = place.start(&with(&["run", "--json"]));
    running.hears("queues in    sqlite:queues.db");
    running.hears("at least once (SendsAtomicWithReceive): the queues are not in the store's database");
    let started: serde_json::Value = serde_json::from_str(&running.reads("started")).unwrap();
    assert_eq!(
        (&started["store"], &started["transport"], &started["mode"]),
        (&json!("sqlite:postdate.db"), &json!("sqlite:queues.db"), &json!("SendsAtomicWithReceive"))
    );
    assert_eq!(place.one(&with(&["send", "billing", "x", "--id", "here"]))["queue_exists"], json!(true));
    let follower = place.start(&with(&["receive", "billing", "--follow", "--count", "1"]));
    follower.reads("x");
    assert_eq!(follower.ends(), Some(0));

    place.ok(&with(&["send", "nowhere", "lost", "--id", "lost"]));
    place.until(&with(&["errors", "list"]), |failed| failed.len() == 1);
    let status = place.one(&with(&["status"]));
    assert_eq!((&status["transport"], &status["error_queue_depth"]), (&json!("sqlite:queues.db"), &json!(1)));
    place.ok(&with(&["queue", "create", "nowhere"]));
    assert_eq!(place.one(&with(&["errors", "retry", "--all"]))["id"], json!("lost"));
    place.until(&with(&["queue", "browse", "nowhere"]), |there| there.len() == 1);
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
    assert!(place.json(&["queue", "list"]).is_empty(), "a queue was made beside the store");
}

#[test]
fn exactly_once_to_queues_elsewhere_is_refused() {
    let ran = Place::new().run(&with(&["run", "--mode", "transaction-scope"]));
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("not in the same database as the store"), "{}", ran.stderr);
}

#[test]
fn queues_in_the_store_itself_may_be_named_too() {
    let place = Place::new();
    let running = place.start(&["run", "--transport", "sqlite:postdate.db"]);
    running.hears("exactly once (TransactionScope)");
    running.signal("TERM");
    assert_eq!(running.ends(), Some(0));
}

#[test]
fn what_is_about_queues_needs_no_store_and_makes_none() {
    let place = Place::new();
    place.ok(&with(&["queue", "create", "q"]));
    place.ok(&with(&["receive", "q"]));
    place.ok(&with(&["queue", "purge", "q", "--yes"]));
    place.ok(&with(&["errors", "list", "--error-queue", "q"]));
    let mut names = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.all(|name| name.to_string_lossy().starts_with("queues.db")));
}

#[test]
fn looking_makes_no_queues_out_of_a_mistyped_name() {
    let place = Place::new();
    place.ok(&["setup"]);
    for args in [&["queue", "list"][..], &["status"], &["errors", "list"]] {
        let ran = place.run(&with(args));
        assert_eq!(ran.code, 7, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("there is no queues.db"), "{}", ran.stderr);
    }
    assert!(!place.path().join("queues.db").exists());
}

#[test]
fn a_secret_in_the_url_of_the_transport_is_noticed_and_not_shown() {
    let place = Place::new();
    let ran = place.run(&["queue", "list", "--transport", "nosuch://me:s3cret@host/x"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("put it into POSTDATE_TRANSPORT instead"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
}
