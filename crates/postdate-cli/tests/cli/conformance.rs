//! conformance.

use std::{thread, time::Instant};

use serde_json::json;

use crate::place::{DEADLINE, Place, Ran};

fn left(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_store_is_judged_beside_its_messages_and_nothing_is_left_behind() {
    let place = Place::new();
    place.ok(&["send", "billing", "kept", "--in", "1h", "--id", "own"]);
    let before = place.json(&["list"]);
    let names =
        ["browsing_takes_nothing", "a completed message is gone", "a_lost_receive_claim_is_not_renewed"];
    let args: Vec<_> = names.iter().flat_map(|name| ["--filter", name]).collect();
    let ran = place.ok(&[&["conformance"], &args[..]].concat());
    for line in ["queues/browsing", "queues/settling", "needs leases", "2 passed, 1 ignored, 0 failed in "] {
        assert!(ran.stdout.contains(line), "{line}: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains('\u{1b}'), "no terminal, no colours: {}", ran.stdout);
    assert_eq!(place.json(&["list"]), before);
    assert!(left(&place).iter().all(|name| !name.contains("scratch")), "{:?}", left(&place));
}

#[test]
fn a_store_need_not_be_there_and_is_not_made() {
    let place = Place::new();
    let lines = place.json(&["conformance", "--filter", "browsing_takes_nothing", "--jobs", "1"]);
    let [judged, sum] = &lines[..] else { panic!("{lines:?}") };
    let expected = json!({
        "subject": "queues", "group": "browsing", "check": "browsing_takes_nothing", "result": "passed",
        "detail": null, "millis": judged["millis"],
    });
    assert_eq!(*judged, expected);
    let counts = (&sum["store"], &sum["passed"], &sum["ignored"], &sum["failed"]);
    assert_eq!(counts, (&json!("sqlite:postdate.db"), &json!(1), &json!(0), &json!(0)));
    assert_eq!(left(&place), [""; 0]);
}

#[test]
fn the_checks_are_listed_without_a_store() {
    let place = Place::new();
    let all = place.json(&["conformance", "--list"]);
    assert!(all.len() > 100, "{}", all.len());
    assert!(all.contains(
        &json!({"subject": "stores", "group": "time", "check": "a_message_is_not_due_before_its_time"})
    ));
    let some = place.ok(&["conformance", "--list", "--filter", "queues/browsing"]).stdout;
    assert!(
        some.lines().count() > 1 && some.lines().all(|line| line.starts_with("queues/browsing/")),
        "{some}"
    );
}

#[test]
fn what_cannot_be_judged_is_refused_with_the_reason() {
    let place = Place::new();
    for (args, code, advice) in [
        (&["--filter", "nonsense"][..], 2, "conformance --list"),
        (&["--store", "nonsense"], 2, "sqlite:postdate.db"),
        (&["--store", "mssql://host/db"], 2, "this build does not contain"),
        (&["--store", "sqlite:missing/postdate.db"], 7, "does not exist"),
        (&["--store", "sqlite:x.db?mode=ro"], 7, "the only option is durability"),
    ] {
        let ran = place.run(&[&["conformance"], args].concat());
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(advice), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
    }
    assert_eq!(left(&place), [""; 0]);
}

#[test]
fn numbers_in_the_environment_that_mean_nothing_are_refused_before_the_run() {
    let place = Place::new();
    for (name, value) in [("POSTDATE_HISTORIES", "0"), ("POSTDATE_SEED", "x"), ("POSTDATE_LARGE", "-1")] {
        let args = ["conformance", "--filter", "browsing_takes_nothing"];
        let ran = Ran::from(place.command(&args).env(name, value).output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{name}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(&format!("error: {name} is {value:?}; make it ")), "{}", ran.stderr);
    }
}

#[test]
fn an_endpoint_that_has_no_effect_is_said_to_have_none() {
    let place = Place::new();
    let args = ["conformance", "--filter", "browsing_takes_nothing", "--endpoint", "own"];
    let ran = place.ok(&args);
    assert!(
        ran.stderr.contains("--endpoint has no effect") && ran.stderr.contains("by 1 check,"),
        "{}",
        ran.stderr
    );
    assert!(!place.ok(&args[..3]).stderr.contains("--endpoint"));
}

#[cfg(target_os = "linux")]
#[test]
fn what_failed_is_named_again_at_the_end() {
    let place = Place::new();
    let binary = env!("CARGO_BIN_EXE_postdate");
    // Enough files for the trial, and too few for three checks at a time.
    let script = format!("ulimit -n 24 && exec {binary} conformance --filter stores/races --jobs 4");
    let mut command = std::process::Command::new("sh");
    let ran = Ran::from(command.args(["-c", &script]).current_dir(place.path()).output().unwrap());
    let (judged, summed) = ran.stdout.split_once("failed:\n").unwrap_or_else(|| panic!("{}", ran.stderr));
    let failed = judged.lines().filter(|line| line.starts_with("  FAILED")).count();
    let named = summed.lines().filter(|line| line.starts_with("  stores/races/")).count();
    assert!(failed > 0 && failed == named && ran.code == 1, "{}", ran.stdout);
    assert!(summed.contains(&format!(" {failed} failed in ")), "{summed}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_goes_away_stops_a_run_and_nothing_is_left_behind() {
    let place = Place::new();
    let running = place.start(&["conformance", "--filter", "stores/races"]);
    running.hears("judging sqlite:postdate.db");
    running.signal("HUP");
    running.signal("HUP");
    running.hears("nothing is left behind");
    assert_eq!(running.ends(), Some(1));
    assert_eq!(left(&place), [""; 0]);
}

#[cfg(unix)]
#[test]
fn a_run_that_is_stopped_leaves_nothing_behind() {
    let place = Place::new();
    let running = place.start(&["conformance", "--filter", "stores/races"]);
    let deadline = Instant::now() + DEADLINE;
    while left(&place).is_empty() {
        assert!(Instant::now() < deadline, "no scratch place was made");
        thread::yield_now();
    }
    running.hears("judging sqlite:postdate.db");
    running.signal("INT");
    let said = running.hears("error: stopped");
    assert!(
        said.contains(" of them failed; ") && said.ends_with(" not, and nothing is left behind"),
        "{said}"
    );
    assert_eq!(running.ends(), Some(1));
    assert_eq!(left(&place), [""; 0]);
}

#[test]
fn a_reader_that_went_away_ends_the_run_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut command = place.command(&["conformance", "--filter", "queues/"]);
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(left(&place), [""; 0]);
}
